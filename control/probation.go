package control

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
)

const (
	// A window closes after windowTime, or later, up to longestWindow, while
	// replicas have on average fewer than windowSamples. It is shorter than the
	// clients' cadence of 1 s, so that each report of a lone client is a window.
	windowTime    = 750 * time.Millisecond
	longestWindow = 5 * time.Second
	windowSamples = 30

	// In probation a replica gets the larger of trickleShare of its fair share of
	// primaries and trickleRate a second, but not more than trickleMost.
	trickleShare = 0.02
	trickleRate  = 10
	trickleMost  = 0.25

	// Never fewer than this many replicas in normal service.
	minServing = 2

	// A replica that is silent while others are used is forgotten.
	forgetServing = 30 * time.Second
	forgetOther   = 10 * time.Minute
	maxReplicas   = 1000 // tracked
	maxStrata     = 256  // methods x zones compared apart; the rest is not compared

	// A daemon that has just started hears of the replicas one report after the other.
	settleTime = 5 * time.Second
)

type stratumKey struct{ method, zone string }

// probation holds the replicas of a service and the window under way.
type probation struct {
	replicas map[string]*replica
	sorted   []*replica // the same, by name
	strata   map[stratumKey]map[*replica]*estimator.Sample
	closed   time.Time // the window before the one under way
	started  time.Time // first sample
	active   time.Time // newest sample
	patience patience
	crowding float64 // of the service, see crowding
}

func newProbation() *probation {
	return &probation{
		crowding: 1,
		replicas: map[string]*replica{},
		strata:   map[stratumKey]map[*replica]*estimator.Sample{},
	}
}

// find returns the replica of that name, or nil when too many are tracked.
func (p *probation) find(name string) *replica {
	r := p.replicas[name]
	if r == nil && len(p.replicas) < maxReplicas {
		r = &replica{name: name, share: 1, latency: estimator.NewWindow(Window/2, 2)}
		p.replicas[name] = r
		at, _ := slices.BinarySearchFunc(p.sorted, name, func(r *replica, name string) int { return cmp.Compare(r.name, name) })
		p.sorted = slices.Insert(p.sorted, at, r)
	}
	return r
}

// excludes reports whether the replica is in probation.
func (p *probation) excludes(name string) bool {
	r := p.replicas[name]
	return r != nil && r.state == policy.ReplicaProbation
}

// restore puts a replica where it stood before a restart.
func (p *probation) restore(name string, from policy.Replica) {
	r := p.find(name)
	if r == nil || from.State == policy.ReplicaServing {
		return
	}
	r.state, r.share, r.reason = from.State, from.Share, from.Reason
	r.doublings = 1
}

// add takes in what one client of a zone saw of one method on one replica.
func (p *probation) add(now time.Time, name, method, zone string, s *estimator.Sample, failed uint64) {
	ended := s.Count()
	if ended == 0 && failed == 0 {
		return
	}
	p.active = now // also where there is no place: those that are gone must make it
	r := p.find(name)
	if r == nil {
		return
	}
	if p.started.IsZero() {
		p.started = now
	}
	r.lastSeen = now
	r.failed += failed
	if ended == 0 {
		return
	}
	r.ended += ended
	r.latency.Add(now, s)
	key := stratumKey{method, zone}
	stratum := p.strata[key]
	if stratum == nil {
		if len(p.strata) >= maxStrata {
			return
		}
		stratum = map[*replica]*estimator.Sample{}
		p.strata[key] = stratum
	}
	sample := stratum[r]
	if sample == nil {
		sample = &estimator.Sample{}
		stratum[r] = sample
	}
	sample.Merge(s)
}

// present says whether r took part lately, measured by the service's own
// activity: a quiet night makes no replica disappear.
func (p *probation) present(r *replica) bool {
	return r.state != policy.ReplicaServing || !r.lastSeen.IsZero() && p.active.Sub(r.lastSeen) < Window
}

// census counts the replicas that are present and those in normal service.
func (p *probation) census() (present, serving int) {
	for _, r := range p.sorted {
		if !p.present(r) {
			continue
		}
		present++
		if r.state == policy.ReplicaServing {
			serving++
		}
	}
	return present, serving
}

// allowance is how many of n replicas may be out of normal service.
func allowance(n int, limit float64) int {
	byShare := int(math.Floor(float64(n)*limit + 1e-9)) // 10 x .1 is 1
	return max(0, min(byShare, n-minServing))
}

// tick judges the window under way once it is long enough. limit is the
// largest share out of service; rate is the service's calls a second.
func (p *probation) tick(now time.Time, limit, rate float64) {
	p.forget()
	p.release(now, limit)
	if now.Sub(p.closed) < windowTime {
		return
	}
	present, _ := p.census()
	var ended uint64
	for _, r := range p.sorted {
		ended += r.ended
	}
	if ended == 0 || ended < windowSamples*uint64(present) && now.Sub(p.closed) < longestWindow {
		return
	}
	found := p.judge()
	for r, e := range found {
		e.variance *= p.crowding
		found[r] = e
	}
	trickle := trickleOf(rate, present)
	for _, r := range p.sorted {
		r.move(now, found[r], trickle, &p.patience)
	}
	p.patience.tick()
	p.eject(now, limit, trickle, found)
	for key, stratum := range p.strata {
		empty := true
		for r, s := range stratum {
			if s.Count() == 0 {
				delete(stratum, r)
				continue
			}
			empty = false
			s.Reset()
		}
		if empty {
			delete(p.strata, key)
		}
	}
	for _, r := range p.sorted {
		r.ended, r.failed = 0, 0
	}
	p.closed = now
}

// forget drops replicas that are gone.
func (p *probation) forget() {
	p.sorted = slices.DeleteFunc(p.sorted, func(r *replica) bool {
		after := forgetServing
		if r.state != policy.ReplicaServing || r.doublings > 0 {
			after = forgetOther
		}
		if r.lastSeen.IsZero() || p.active.Sub(r.lastSeen) <= after {
			return false
		}
		delete(p.replicas, r.name)
		for _, stratum := range p.strata {
			delete(stratum, r)
		}
		return true
	})
}

// release holds the cap when replicas go away or the cap is lowered: those
// nearest to release first.
func (p *probation) release(now time.Time, limit float64) {
	if p.started.IsZero() || now.Sub(p.started) < settleTime {
		return
	}
	present, serving := p.census()
	over := present - serving - allowance(present, limit)
	if over <= 0 {
		return
	}
	out := slices.DeleteFunc(slices.Clone(p.sorted), func(r *replica) bool { return r.state == policy.ReplicaServing })
	slices.SortStableFunc(out, func(a, b *replica) int { return cmp.Compare(b.share, a.share) })
	for _, r := range out[:min(over, len(out))] {
		r.enter(now, policy.ReplicaServing, 1, "")
	}
}

// judge compares each replica with the others, stratum by stratum.
func (p *probation) judge() map[*replica]evidence {
	found := make(map[*replica]evidence, len(p.replicas))
	for _, stratum := range p.strata {
		typical, ok := typicalQuantiles(stratum)
		if !ok {
			continue
		}
		var pool ranked
		type counted struct {
			r    *replica
			mine ranked
		}
		all := make([]counted, 0, len(stratum))
		for r, s := range stratum {
			t := rank(s, typical)
			all = append(all, counted{r, t})
			if r.state == policy.ReplicaServing {
				pool.add(t)
			}
		}
		for _, c := range all {
			others := pool
			if c.r.state == policy.ReplicaServing {
				others = pool.without(c.mine)
			}
			if others.known < minJudged {
				continue
			}
			e := found[c.r]
			e.compare(c.mine, others)
			found[c.r] = e
		}
	}
	return found
}

// typicalQuantiles are the cuts of a stratum: of each the median over serving replicas
// of their own (the lower one of two): the p90 of a pool hides two sick replicas of ten
// from each other, and a median that most replicas exceed is the latency of most, so
// that shared slowness flags nobody. Where each replica has too few samples for its
// own, the pool's is used.
func typicalQuantiles(stratum map[*replica]*estimator.Sample) (typical [len(cuts)]time.Duration, ok bool) {
	var own []*estimator.Sample
	var pool estimator.Sample
	for r, s := range stratum {
		if r.state != policy.ReplicaServing {
			continue
		}
		if s.Count() >= minJudged {
			own = append(own, s)
		} else {
			pool.Merge(s)
		}
	}
	if len(own) < minServing {
		for _, s := range own {
			pool.Merge(s)
		}
		own = []*estimator.Sample{&pool}
	}
	each := make([]time.Duration, len(own))
	for k, cut := range cuts {
		for i, s := range own {
			var ok bool
			if each[i], ok = s.Quantile(cut); !ok {
				each[i] = math.MaxInt64 // so much of it is cancelled: longer than any
			}
		}
		slices.Sort(each)
		q := each[(len(each)-1)/2]
		if q == math.MaxInt64 {
			return typical, false
		}
		// Above its bucket: where all latencies are equal, nothing outlives them.
		typical[k] = time.Duration(bucketRatio * float64(q))
	}
	return typical, true
}

// eject puts the slowest replicas into probation, as far as the cap allows.
func (p *probation) eject(now time.Time, limit, trickle float64, found map[*replica]evidence) {
	var slow []*replica
	for _, r := range p.sorted {
		e := found[r]
		persistent := r.run.persists(p.patience.needs(r.doublings))
		if r.state == policy.ReplicaServing && !e.healthy() && persistent {
			slow = append(slow, r)
		}
	}
	slices.SortStableFunc(slow, func(a, b *replica) int {
		return cmp.Compare(b.run.sum.z(), a.run.sum.z())
	})
	present, serving := p.census()
	room := allowance(present, limit) - (present - serving)
	for _, r := range slow[:max(0, min(room, len(slow)))] {
		r.relapse(now, trickle, r.run.sum)
	}
}

// trickleOf is the share of its fair share that a replica in probation gets.
func trickleOf(rate float64, replicas int) float64 {
	fair := rate / float64(max(replicas, 1))
	if !(fair > 0) {
		return trickleMost
	}
	return min(max(trickleShare, trickleRate/fair), trickleMost)
}

// policies are the replicas that are not in normal service.
func (p *probation) policies() map[string]policy.Replica {
	var out map[string]policy.Replica
	for _, r := range p.sorted {
		if r.state == policy.ReplicaServing {
			continue
		}
		if out == nil {
			out = map[string]policy.Replica{}
		}
		out[r.name] = policy.Replica{State: r.state, Share: r.share, Reason: r.reason}
	}
	return out
}
