package client

import (
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// An observed call's loser runs to its end, so that what the caller would have
// waited without hedging is known, and whether copies are alike. Its context is
// detached from the caller's: the caller may be done with the call long before.
const (
	// observeLimit is how long a loser runs on once its call is over.
	observeLimit = 10 * time.Second
	// maxObserved is how many calls of a service are observed at one time.
	maxObserved = 100
)

// choose has a call whose first hedge goes now observed, if it can be. One whose
// hedge had to wait for a token is longer than others, and would not tell of them.
func (r *race) choose() {
	if !r.observable || r.plan.Attempts() != 2 || r.refusal == policy.SuppressedBudget {
		return
	}
	if r.service.observed.Add(1) > maxObserved {
		r.service.observed.Add(-1)
		return
	}
	r.observing = true
	r.method.observed.Add(1)
}

// observe takes what became of an observed call's attempts, once both have ended.
func (r *race) observe() {
	if !r.observing {
		return
	}
	x, y := r.carrier.first().state(), r.hedges[0].state()
	if !x.ended || !y.ended {
		return
	}
	r.observing = false
	r.service.observed.Add(-1)
	if x.told && y.told {
		r.method.pair(estimator.NewPair(x.took, y.took))
	}
	if r.over {
		r.expiry.Stop()
		r.carrier.settle()
	}
}

// observed reports whether the first two attempts are to run on.
func (r *race) observed() bool { return r.observing && !r.expired }

// expire cuts losers that take too long.
func (r *race) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expired = true
	r.carrier.settle()
}

// pair keeps what became of an observed call, until the next drain.
func (m *method) pair(p estimator.Pair) {
	m.pairing.Lock()
	defer m.pairing.Unlock()
	if len(m.pairs) < report.MaxPairs {
		m.pairs = append(m.pairs, p)
	}
}

func (m *method) takePairs() []estimator.Pair {
	m.pairing.Lock()
	defer m.pairing.Unlock()
	pairs := m.pairs
	m.pairs = nil
	return pairs
}
