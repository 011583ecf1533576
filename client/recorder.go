package client

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Bounds of what one service's recorder keeps, so that names made of ids cannot
// grow memory: whatever is beyond them is counted under other.
const (
	maxMethods = policy.MaxMethods - 1 // and other
	maxSeries  = 2048                  // pairs of method and replica, each method's other not counted
	// other is the method or replica of whatever is beyond the bounds, or has a
	// name that cannot be reported.
	other = "other"
	// idleTime is how long a replica may be without a sample before it is
	// forgotten; for as long again, whoever found it before still counts.
	idleTime = time.Minute
	// maxInterval is the longest interval that a report may cover.
	maxInterval = time.Hour
)

// recorder counts one service's calls. Counting takes no lock and, once a name
// is known, allocates nothing.
type recorder struct {
	methods atomic.Pointer[map[string]*method] // copied on write
	rest    *method                            // other
	series  atomic.Int64                       // replicas in the maps; written under growing

	growing sync.Mutex // held to change a map

	draining sync.Mutex // guards what follows, and what drains have taken
	drained  time.Time  // end of the last interval
	retired  []*replica // out of the maps, but perhaps found just before
}

// method is what was counted of one method since the start; it only grows.
type method struct {
	name string
	rec  *recorder

	calls, safe, eligible, hedges, cancelledUnsent, wins, failures atomic.Uint64
	observed                                                       atomic.Uint64 // see report.Method
	suppressed                                                     [policy.NumSuppressions]atomic.Uint64
	hedged, unhedged, heldOut                                      estimator.Recorder // see report.Method

	pairing sync.Mutex       // guards pairs
	pairs   []estimator.Pair // of observed calls, since the last drain

	replicas atomic.Pointer[map[string]*replica] // copied on write
	rest     *replica                            // other

	seen atomic.Pointer[law] // by the policy of the last call

	reported Counts // what drains have taken; guarded by rec.draining
}

// replica is what was seen of one replica by one method since the last drain.
// It may be forgotten when idle, so look it up when there is something to
// record, and do not keep it.
type replica struct {
	primary, hedge samples
	failed         atomic.Uint64 // attempts that failed; their latency is not kept

	method *method
	name   string
	used   time.Time // made, or last found with a sample; guarded by draining once in a map
}

// law is what a policy says of one method.
type law struct {
	policy *policy.Policy
	policy.Method
}

var noLaw policy.Method // without a policy

// under returns what p says of the method that is called name. Calls mostly share a
// policy, so the answer of the last one is mostly right.
func (m *method) under(p *policy.Policy, name string) *policy.Method {
	if seen := m.seen.Load(); seen != nil && seen.policy == p {
		return &seen.Method
	}
	l := &law{policy: p}
	l.Method, _ = p.Method(name)
	if m.name == name { // other has many names
		m.seen.Store(l)
	}
	return &l.Method
}

// samples is what became of one kind of attempt: those that ended, and those
// that were cancelled, whose latency is longer than the recorded one.
type samples struct {
	completed, censored estimator.Recorder
}

func (r *recorder) init(now time.Time) {
	r.methods.Store(&map[string]*method{})
	r.rest = r.newMethod(other)
	r.drained = now
}

func (r *recorder) newMethod(name string) *method {
	m := &method{name: name, rec: r}
	m.replicas.Store(&map[string]*replica{})
	m.rest = &replica{method: m, name: other}
	return m
}

// method returns the counters of a full method, or those of other.
func (r *recorder) method(fullMethod string) *method {
	all := *r.methods.Load()
	if m := all[fullMethod]; m != nil {
		return m
	}
	if len(all) >= maxMethods || fullMethod == other || policy.ValidateName("method", fullMethod) != nil {
		return r.rest
	}
	return r.addMethod(strings.Clone(fullMethod))
}

func (r *recorder) addMethod(name string) *method {
	r.growing.Lock()
	defer r.growing.Unlock()
	all := *r.methods.Load()
	if m := all[name]; m != nil {
		return m
	}
	if len(all) >= maxMethods {
		return r.rest
	}
	next := make(map[string]*method, len(all)+1)
	maps.Copy(next, all)
	m := r.newMethod(name)
	next[name] = m
	r.methods.Store(&next)
	return m
}

// replica returns where to record what a replica did, or other's place.
func (m *method) replica(name string) *replica {
	if p := (*m.replicas.Load())[name]; p != nil {
		return p
	}
	if m.rec.series.Load() >= maxSeries || name == other || policy.ValidateName("replica", name) != nil {
		return m.rest
	}
	return m.addReplica(strings.Clone(name))
}

func (m *method) addReplica(name string) *replica {
	m.rec.growing.Lock()
	defer m.rec.growing.Unlock()
	all := *m.replicas.Load()
	if p := all[name]; p != nil {
		return p
	}
	if m.rec.series.Load() >= maxSeries {
		return m.rest
	}
	next := make(map[string]*replica, len(all)+1)
	maps.Copy(next, all)
	p := &replica{method: m, name: name, used: time.Now()}
	next[name] = p
	m.replicas.Store(&next)
	m.rec.series.Add(1)
	return p
}

// forget takes idle replicas out of their maps.
func (r *recorder) forget(idle map[*method][]*replica) {
	r.growing.Lock()
	defer r.growing.Unlock()
	for m, gone := range idle {
		next := maps.Clone(*m.replicas.Load())
		for _, p := range gone {
			delete(next, p.name)
		}
		m.replicas.Store(&next)
		r.series.Add(-int64(len(gone)))
	}
}

// begun returns how many calls began since the last drain.
func (r *recorder) begun() uint64 {
	r.draining.Lock()
	defer r.draining.Unlock()
	n := r.rest.calls.Load() - r.rest.reported.Calls
	for _, m := range *r.methods.Load() {
		n += m.calls.Load() - m.reported.Calls
	}
	return n
}

// drain moves what was recorded since the last drain into a report that has
// its interval and methods, and nothing else yet. Methods is nil when nothing
// was recorded.
func (r *recorder) drain(now time.Time) *report.Report {
	r.draining.Lock()
	defer r.draining.Unlock()
	out := &report.Report{Interval: min(max(now.Sub(r.drained), 0), maxInterval)}
	r.drained = now

	d := drain{now: now, out: out, idle: map[*method][]*replica{}}
	for _, m := range *r.methods.Load() {
		d.method(m)
	}
	d.method(r.rest)
	r.retired = slices.DeleteFunc(r.retired, func(p *replica) bool {
		d.replica(p)
		return now.Sub(p.used) >= 2*idleTime
	})

	if len(d.idle) > 0 {
		r.forget(d.idle)
		for _, gone := range d.idle {
			r.retired = append(r.retired, gone...)
		}
	}
	return out
}

// drain is one drain under way.
type drain struct {
	now   time.Time
	out   *report.Report
	idle  map[*method][]*replica
	spare *report.Replica // empty; most replicas need none of their own
	fresh *report.Method  // likewise
}

func (d *drain) method(m *method) {
	if d.fresh == nil {
		d.fresh = &report.Method{}
	}
	got := d.fresh
	m.hedged.Drain(&got.Hedged)
	m.unhedged.Drain(&got.Unhedged)
	m.heldOut.Drain(&got.HeldOut)
	got.Observed = m.observed.Swap(0)
	got.Pairs = m.takePairs()
	seen := m.counts()
	// A hedge that counted as unsent may turn out to be sent.
	seen.CancelledUnsent = max(seen.CancelledUnsent, m.reported.CancelledUnsent)
	delta := seen.minus(m.reported)
	if delta != (Counts{}) || got.Hedged.Count()+got.Unhedged.Count()+uint64(len(got.Pairs)) > 0 {
		m.reported = seen
		delta.put(got)
		d.put(m.name, got)
		d.fresh = nil
	}
	for _, p := range *m.replicas.Load() {
		if !d.replica(p) && d.now.Sub(p.used) >= idleTime {
			d.idle[m] = append(d.idle[m], p)
		}
	}
	d.replica(m.rest)
}

// replica moves p's samples to the report, and says whether there were any.
func (d *drain) replica(p *replica) bool {
	if d.spare == nil {
		d.spare = &report.Replica{}
	}
	got := d.spare
	p.primary.completed.Drain(&got.Primary.Completed)
	p.primary.censored.Drain(&got.Primary.Censored)
	p.hedge.completed.Drain(&got.Hedge.Completed)
	p.hedge.censored.Drain(&got.Hedge.Censored)
	got.Failed = p.failed.Swap(0)
	if got.Failed == 0 && empty(&got.Primary) && empty(&got.Hedge) {
		return false
	}
	d.spare = nil
	p.used = d.now
	m := d.of(p.method.name)
	if had := m.Replicas[p.name]; had != nil { // a retired one that came back
		had.Primary.Merge(&got.Primary)
		had.Hedge.Merge(&got.Hedge)
		had.Failed += got.Failed
		return true
	}
	if m.Replicas == nil {
		m.Replicas = map[string]*report.Replica{}
	}
	m.Replicas[p.name] = got
	return true
}

// of returns the report's part for a method.
func (d *drain) of(name string) *report.Method {
	m := d.out.Methods[name]
	if m == nil {
		m = &report.Method{}
		d.put(name, m)
	}
	return m
}

func (d *drain) put(name string, m *report.Method) {
	if d.out.Methods == nil {
		d.out.Methods = map[string]*report.Method{}
	}
	d.out.Methods[name] = m
}

func empty(s *estimator.Sample) bool { return s.Completed.Count() == 0 && s.Censored.Count() == 0 }
