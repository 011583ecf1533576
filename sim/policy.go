package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/hedged-project/hedged/internal/suggest"
	"github.com/hedged-project/hedged/policy"
)

// law is a hedging policy in one world: what its clients share. A policy is a
// file of its own: ours.go and ours_client.go are hedged, the files alt_*.go are
// what others do.
type law interface {
	// begin is called once, when the clients are there and before any event.
	begin()
	// join returns the law of one client's calls.
	join(*client) agent
	// happen takes the law's own events.
	happen(event)
}

// agent is a hedging policy in one client. The world calls it at each step of a
// call; hedge.Plan says when an attempt is due, the agent whether it may go.
type agent interface {
	// method is what a call of that method hedges by if it starts now; the zero
	// Method: not at all.
	method(int32) policy.Method
	// sent says that a primary of a method is about to be sent.
	sent(method int32)
	// eligible says of each call that has a delay whether it outlived it.
	eligible(c *call, yes bool)
	// mayHedge says whether anything but the budget forbids the due attempt.
	mayHedge(*call) (policy.Suppression, bool)
	// take asks for the due attempt to go.
	take(*call) answer
	// promote asks again for one that waits.
	promote(*call) bool
	// giveBack returns what take or promote gave: the attempt may not go any more.
	giveBack()
	// hedged says that the attempt goes.
	hedged(*call)
	// ended says how long attempt i was under way, and how it ended.
	ended(c *call, i int, took time.Duration, how outcome)
	// done says that a call is over; attempt i answered it.
	done(c *call, i int)
	// leave says that the client ends.
	leave()
}

// answer is whether an attempt goes.
type answer uint8

const (
	refused answer = iota // for good
	waits
	goes
)

// outcome is how an attempt ended.
type outcome uint8

const (
	completed outcome = iota
	failed
	censored // cancelled: its latency is longer
)

// quietLaw and quietAgent do nothing; others are made on top of them.
type quietLaw struct{}

func (quietLaw) begin()       {}
func (quietLaw) happen(event) {}

type quietAgent struct{}

func (quietAgent) method(int32) policy.Method                { return policy.Method{} }
func (quietAgent) sent(int32)                                {}
func (quietAgent) eligible(*call, bool)                      {}
func (quietAgent) mayHedge(*call) (policy.Suppression, bool) { return 0, true }
func (quietAgent) take(*call) answer                         { return refused }
func (quietAgent) promote(*call) bool                        { return false }
func (quietAgent) giveBack()                                 {}
func (quietAgent) hedged(*call)                              {}
func (quietAgent) ended(*call, int, time.Duration, outcome)  {}
func (quietAgent) done(*call, int)                           {}
func (quietAgent) leave()                                    {}

// twoAttempts is the policy of a call with one hedge after d.
func twoAttempts(d time.Duration) policy.Method {
	if d <= 0 {
		return policy.Method{}
	}
	return policy.Method{Delay: d, Probability: 1, MaxAttempts: 2}
}

// Policy is a hedging policy that a scenario can be run under.
type Policy struct {
	Name string // as the command line takes it
	Text string // what it does
	new  func(*World) law
}

// Policies returns all policies, the baseline first and hedged last. The oracle is
// not among them: it must be looked for, see FindOracle.
func Policies() []Policy {
	return []Policy{
		{"none", "no hedging", newNone},
		{"fixed", "the p95 of the first 4,000 calls, for good; no budget", newFixed},
		{"windowed", "percentile of each client's last 30 s, every 3 s, with a bucket of 10 s", newWindowed},
		{"finagle", "the same in whole ms, hedges counted, with a leaky bucket (Finagle's rule)", newFinagle},
		{"ytsaurus", "the delay steps 5% up or down once a second, with tokens (YTsaurus' rule)", newYtsaurus},
		{"foundationdb", "a multiple of the last latency, grown by hedges; 5% tokens (FoundationDB's rule)", newFoundationDB},
		{"bhope", "p90 of a sketch, 10 tokens a second by the clock (bhope/hedge's rule)", newBhope},
		{"alone", "hedged with a controller in each client instead of one for all", newAlone},
		{"hedged", "this project's controller and client", newOurs},
	}
}

// PolicyNames returns the names of Policies, and "oracle".
func PolicyNames() []string {
	var names []string
	for _, p := range Policies() {
		names = append(names, p.Name)
	}
	return append(names, OracleName)
}

// FindPolicy returns the policy of that name.
func FindPolicy(name string) (Policy, error) {
	all := Policies()
	if i := slices.IndexFunc(all, func(p Policy) bool { return p.Name == name }); i >= 0 {
		return all[i], nil
	}
	return Policy{}, fmt.Errorf("policy: %.40q is unknown%s", name, suggest.For(name, PolicyNames()))
}
