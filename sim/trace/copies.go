package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// copiesEach is how many copies of a call are looked at: what a hedge of it takes is
	// what each of them took, all as likely.
	copiesEach = 8
	// recent is how many calls that ended last a replica is judged by when it is picked.
	recent = 20
	// pairs is how many picks of a replica are looked at for each call.
	pairs = 4
)

// attempt is a call's primary as it might have been: one of several, as likely as
// its weight says.
type attempt struct {
	call
	from   int32 // the call that it stands for
	weight float64
}

// replicas are the calls of each, to find what one took at a time.
type replicas struct {
	t     *Trace
	calls [][]call // by replica, by arrival
	ends  []ends   // by replica
	rand  *rand.Rand
}

// ends are a replica's calls as they ended, by time, with the sum of the logarithms
// of their latencies up to and without each.
type ends struct {
	at  []time.Duration
	log []float64
}

func newReplicas(t *Trace) *replicas {
	n := max(len(t.Replicas), 1)
	r := &replicas{
		t:     t,
		calls: make([][]call, n),
		ends:  make([]ends, n),
		rand:  rand.New(rand.NewPCG(1, 2)), // the same for everyone, so that figures can be compared
	}
	for _, c := range t.calls {
		r.calls[c.replica] = append(r.calls[c.replica], c)
	}
	if len(t.Replicas) < 2 {
		return r
	}
	for i, calls := range r.calls {
		by := slices.Clone(calls)
		slices.SortStableFunc(by, func(a, b call) int { return int(a.arrival + a.latency - b.arrival - b.latency) })
		e := ends{log: make([]float64, 1, len(by)+1)}
		for k, c := range by {
			e.at = append(e.at, c.arrival+c.latency)
			e.log = append(e.log, e.log[k]+math.Log(float64(max(c.latency, time.Microsecond))))
		}
		r.ends[i] = e
	}
	return r
}

// plain are the calls as they were.
func (r *replicas) plain() []attempt {
	all := make([]attempt, len(r.t.calls))
	for i, c := range r.t.calls {
		all[i] = attempt{call: c, from: int32(i), weight: 1}
	}
	return all
}

// picked are the calls as the better of two random replicas would have served them, by
// the mean of the logarithms of the last latencies that had ended by then.
func (r *replicas) picked() []attempt {
	pairs := min(max(outcomesKept/len(r.t.calls), 1), pairs)
	all := make([]attempt, 0, pairs*len(r.t.calls))
	for i, c := range r.t.calls {
		for range pairs {
			one, other := r.rand.IntN(len(r.calls)), r.rand.IntN(len(r.calls)-1)
			if other >= one {
				other++
			}
			if r.level(other, c.arrival) < r.level(one, c.arrival) {
				one = other
			}
			p := c
			if int(c.replica) != one {
				p = call{arrival: c.arrival, replica: int32(one), latency: r.nearest(one, c.arrival).latency}
			}
			all = append(all, attempt{call: p, from: int32(i), weight: 1 / float64(pairs)})
		}
	}
	return all
}

// level is how slow a replica seemed at a time; one that nothing is known of seems
// quick, so that it is tried.
func (r *replicas) level(replica int, at time.Duration) float64 {
	e := &r.ends[replica]
	n, found := slices.BinarySearch(e.at, at)
	for found && n < len(e.at) && e.at[n] == at {
		n++
	}
	from := max(n-recent, 0)
	if n == from {
		return math.Inf(-1)
	}
	return (e.log[n] - e.log[from]) / float64(n-from)
}

// nearest is the replica's call that arrived nearest to a time.
func (r *replicas) nearest(replica int, at time.Duration) call {
	return r.around(replica, at, 0)
}

// around is the k-th call to the right of the nearest, or to the left, by turns.
func (r *replicas) around(replica int, at time.Duration, k int) call {
	calls := r.calls[replica]
	n, _ := slices.BinarySearchFunc(calls, at, func(c call, at time.Duration) int { return int(min(max(c.arrival-at, -1), 1)) })
	if n == len(calls) || n > 0 && at-calls[n-1].arrival < calls[n].arrival-at {
		n--
	}
	if k%2 == 1 {
		n += (k + 1) / 2
	} else {
		n -= k / 2
	}
	return calls[min(max(n, 0), len(calls)-1)]
}

// copies appends what so many copies of an attempt took that were sent at a time: calls
// on other replicas at about that time, or any calls where the trace does not say.
func (r *replicas) copies(a *attempt, at time.Duration, count int, to []time.Duration) []time.Duration {
	if len(r.t.Replicas) < 2 {
		for range count {
			to = append(to, r.t.calls[r.rand.IntN(len(r.t.calls))].latency)
		}
		return to
	}
	others := len(r.calls) - 1
	first := r.rand.IntN(others) // where there are many, some of them
	for k := range count {
		other := (first + k) % others
		if other >= int(a.replica) {
			other++
		}
		to = append(to, r.around(other, at, k/others).latency)
	}
	return to
}
