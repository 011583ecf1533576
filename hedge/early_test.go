package hedge

import (
	"math/rand/v2"
	"testing"
	"time"
)

func newEarlyRule(expected float64) *EarlyRule {
	r := NewEarlyRule()
	r.Set(expected)
	return r
}

// fires returns how often the rule fires in n calls of which the share rate is
// eligible, at 1,000 calls a second with a report each second.
func fires(expected, rate float64, n int) (count int) {
	r := newEarlyRule(expected)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		if i%1000 == 0 {
			r.Reset()
		}
		if r.Observe(random.Float64() < rate, time.Duration(i)*time.Millisecond) {
			count++
		}
	}
	return count
}

func TestEarlyRuleFalseAlarms(t *testing.T) {
	const n = 100_000
	for _, c := range []struct {
		expected, rate float64
		most           int
	}{
		{.05, .05, 5},
		{.043, .043, 5},
		{.01, .01, 5},
		{.2, .2, 5},
		{.043, .065, 30}, // half as many again: the cadence is soon enough
		{.043, 0, 0},     // a lower bound holds the delay up
	} {
		got := fires(c.expected, c.rate, n)
		t.Logf("expected %v, real %v: %d early reports in %d calls", c.expected, c.rate, got, n)
		if got > c.most {
			t.Errorf("expected %v, real %v: %d early reports in %d calls, want at most %d", c.expected, c.rate, got, n, c.most)
		}
	}
}

func TestEarlyRuleFires(t *testing.T) {
	after := func(eligible func(i int) bool) int {
		r := newEarlyRule(.043)
		for i := range 10_000 {
			if r.Observe(eligible(i), time.Duration(i)) {
				return i + 1
			}
		}
		return -1
	}
	for _, c := range []struct {
		name     string
		eligible func(int) bool
		most     int
	}{
		{"everything freezes", func(int) bool { return true }, 8},
		{"half are eligible", func(i int) bool { return i%2 == 0 }, 20},
		{"a third are eligible", func(i int) bool { return i%3 == 0 }, 45},
	} {
		if got := after(c.eligible); got < 0 || got > c.most {
			t.Errorf("%s: fired after %d calls, want at most %d", c.name, got, c.most)
		}
	}
}

// However fast the calls come, reports go at most each EarlyGap.
func TestEarlyRuleGap(t *testing.T) {
	r := newEarlyRule(.05)
	count := 0
	for at := time.Duration(1); at < time.Second; at += time.Millisecond {
		if r.Observe(true, at) {
			count++
		}
	}
	if count != 5 {
		t.Errorf("a second of nothing but eligible calls: %d early reports, want 5", count)
	}
	r = NewEarlyRule()
	for range 1000 {
		if r.Observe(true, 0) {
			t.Fatal("no policy: it fired")
		}
	}
}

func BenchmarkEarlyRule(b *testing.B) {
	r := newEarlyRule(.05)
	b.ReportAllocs()
	for b.Loop() {
		r.Observe(false, 1)
	}
}
