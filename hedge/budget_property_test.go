package hedge

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/hedged-project/hedged/policy"
)

// budgetMachine drives a Budget through any history and keeps the books beside
// it, in millionths of a token.
type budgetMachine struct {
	budget *Budget
	limits policy.Budget
	active bool
	given  int64

	waiting []*Waiter // in the queue, as far as the caller knows
	unspent int       // tokens received and not spent on a hedge

	// net is hedges granted minus tokens given back, less what was earned; low
	// is the least it has been. In any stretch of calls net rises by at most the
	// burst.
	net, low, burst int64
}

func (m *budgetMachine) granted(n int) { m.net += int64(n) * token }

func (m *budgetMachine) check(t *rapid.T) {
	m.low = min(m.low, m.net)
	if over := m.net - m.low - m.burst; over > 0 {
		t.Fatalf("a stretch of calls has %d millionths of a hedge more than ratio*n + burst", over)
	}
	s := unpack(m.budget.word.Load())
	if s.tokens > amount(m.limits.Burst) {
		t.Fatalf("%d millionths of a token, burst %v", s.tokens, m.limits.Burst)
	}
	queued := 0
	for _, w := range m.waiting {
		if w.queued {
			queued++
		}
	}
	if s.waiting != (queued > 0) {
		t.Fatalf("waiting bit is %v, %d wait", s.waiting, queued)
	}
	if !m.active {
		return
	}
	for _, w := range m.waiting {
		if _, ok := s.take(w.level); ok && w.queued {
			t.Fatalf("a waiter of level %d waits beside %d millionths of a token, reserve %d", w.level, s.tokens, s.reserve)
		}
	}
}

func (m *budgetMachine) earn() {
	if m.active {
		m.net -= int64(amount(m.limits.Ratio))
	}
	m.granted(len(m.budget.Earn()))
}

func (m *budgetMachine) set(p policy.Budget, active bool) {
	if start := int64(amount(p.Start)); active && start > m.given {
		m.net -= start - m.given
		m.given = start
	}
	m.limits, m.active = p, active
	m.burst = max(m.burst, int64(amount(p.Burst)))
	m.granted(len(m.budget.Set(p, active)))
}

// any returns some waiter.
func (m *budgetMachine) any(t *rapid.T) *Waiter {
	if len(m.waiting) == 0 {
		t.Skip("nobody waits")
	}
	return rapid.SampledFrom(m.waiting).Draw(t, "waiter")
}

func (m *budgetMachine) forget(w *Waiter) {
	m.waiting = slices.DeleteFunc(m.waiting, func(x *Waiter) bool { return x == w })
}

// Any history of calls, hedges, promotions, calls that end and new policies
// keeps the bound, makes no token, and forgets no waiter.
func TestBudgetAnyHistory(t *testing.T) {
	limits := rapid.Custom(func(t *rapid.T) policy.Budget {
		burst := rapid.SampledFrom([]float64{0, 1, 1.5, 2, 5, 20, 50, 200}).Draw(t, "burst")
		return policy.Budget{
			Ratio: rapid.SampledFrom([]float64{0, .01, .048, .1, 1.0 / 3, 1}).Draw(t, "ratio"),
			Burst: burst,
			Start: burst * rapid.SampledFrom([]float64{0, .3, 1}).Draw(t, "start"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		m := &budgetMachine{budget: NewBudget()}
		t.Repeat(map[string]func(*rapid.T){
			"": m.check,
			"earn": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "calls") {
					m.earn()
				}
			},
			"take": func(t *rapid.T) {
				w := new(Waiter)
				if m.budget.Take(w, rapid.Bool().Draw(t, "late")) {
					m.granted(1)
					m.unspent++
				} else if m.active {
					m.waiting = append(m.waiting, w)
				}
			},
			"promote": func(t *rapid.T) {
				w := m.any(t)
				had := !w.queued
				if m.budget.Promote(w) {
					if !had {
						m.granted(1)
					}
					m.unspent++
					m.forget(w)
				} else if !w.queued {
					t.Fatal("Promote lost a waiter")
				}
			},
			"receive": func(t *rapid.T) {
				w := m.any(t)
				select {
				case <-w.C:
					m.unspent++
					m.forget(w)
				default:
				}
			},
			"leave": func(t *rapid.T) {
				w := m.any(t)
				had, next := m.budget.Leave(w)
				m.forget(w)
				if had {
					m.granted(-1)
				}
				if next != nil {
					m.granted(1)
				}
			},
			"return": func(t *rapid.T) {
				if m.unspent == 0 {
					t.Skip("none")
				}
				m.unspent--
				m.granted(-1)
				if m.budget.Return() != nil {
					m.granted(1)
				}
			},
			"set": func(t *rapid.T) {
				m.set(limits.Draw(t, "limits"), rapid.Bool().Draw(t, "active"))
			},
		})

		m.set(policy.Budget{Ratio: 1, Burst: 200}, true)
		for range 3 * (len(m.waiting) + 100) {
			m.earn()
		}
		for _, w := range m.waiting {
			select {
			case <-w.C:
			default:
				t.Fatalf("a waiter of level %d never got its token", w.level)
			}
		}
		m.check(t)
	})
}
