package client

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

func newTestService() *service { return newService(orders, func() {}) }

// total adds up a method's counts and samples over all replicas.
func total(methods map[string]*report.Method) (calls, samples, failed uint64) {
	for _, m := range methods {
		calls += m.Calls
		for _, r := range m.Replicas {
			samples += r.Primary.Completed.Count() + r.Primary.Censored.Count() + r.Hedge.Completed.Count() + r.Hedge.Censored.Count()
			failed += r.Failed
		}
	}
	return calls, samples, failed
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Values of each request as names once grew memory without end: methods that
// contain ids, and 100,000 replicas that come and go, stay within the bounds,
// and nothing goes uncounted.
func TestNamesWithoutEndStayWithinTheBounds(t *testing.T) {
	s := newTestService()
	const names = 100_000
	for i := range names {
		m := s.method(fmt.Sprintf("/shop.Orders/Get%d", i))
		s.noteCall(m, true)
		m.replica("a").failed.Add(1)
		if got := len(*s.methods.Load()); got > maxMethods {
			t.Fatalf("%d methods are kept, want at most %d", got, maxMethods)
		}
	}
	if got := len(*s.methods.Load()); got != maxMethods {
		t.Errorf("%d methods are kept, want %d", got, maxMethods)
	}
	r := s.drain(time.Now())
	calls, _, failed := total(r.Methods)
	if calls != names || failed != names {
		t.Errorf("reported %d calls and %d failures, want %d of each", calls, failed, names)
	}
	if got := r.Methods[other].Calls; got != names-maxMethods || len(r.Methods) != policy.MaxMethods {
		t.Errorf("%d methods with %d calls of other, want %d and %d", len(r.Methods), got, policy.MaxMethods, names-maxMethods)
	}
	if got := s.stats(); got.Calls != names || got.Method[other].Calls != names-maxMethods {
		t.Errorf("stats show %d calls, %d of other", got.Calls, got.Method[other].Calls)
	}
}

func TestReplicasThatComeAndGoLeaveTheHeapFlat(t *testing.T) {
	s := newTestService()
	m := s.method(get)
	const rounds, each = 2000, 50
	now := time.Now()
	var before uint64
	for round := range rounds {
		for i := range each {
			m.replica(fmt.Sprintf("10.0.%d.%d:80", round, i)).primary.completed.Record(time.Millisecond)
		}
		r := s.drain(now)
		if _, samples, _ := total(r.Methods); samples != each {
			t.Fatalf("round %d: %d samples were reported, want %d", round, samples, each)
		}
		for range 2 { // forgotten, then freed
			now = now.Add(idleTime)
			if _, samples, _ := total(s.drain(now).Methods); samples != 0 {
				t.Fatalf("round %d: samples were reported twice", round)
			}
		}
		if len(s.retired) != 0 {
			t.Fatalf("round %d: %d replicas are still drained", round, len(s.retired))
		}
		if left := len(*m.replicas.Load()); left != 0 {
			t.Fatalf("round %d: %d replicas that went are kept", round, left)
		}
		if round == 1 {
			before = heap()
		}
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes over %d replicas", before, after, rounds*each)
	}
	if got := s.series.Load(); got != 0 {
		t.Errorf("%d series are left, want 0", got)
	}
}

func TestReplicasBeyondTheBoundAreCountedAsOther(t *testing.T) {
	s := newTestService()
	m := s.method(get)
	const names = 100_000
	for i := range names {
		m.replica(fmt.Sprint("replica-", i)).hedge.censored.Record(time.Millisecond)
		if got := len(*m.replicas.Load()); got > maxSeries {
			t.Fatalf("%d replicas are kept, want at most %d", got, maxSeries)
		}
	}
	if got := len(*m.replicas.Load()); got != maxSeries {
		t.Errorf("%d replicas are kept, want %d", got, maxSeries)
	}
	r := s.drain(time.Now())
	if _, samples, _ := total(r.Methods); samples != names {
		t.Errorf("%d samples were reported, want %d", samples, names)
	}
	if got := r.Methods[get].Replicas[other].Hedge.Censored.Count(); got != names-maxSeries {
		t.Errorf("other has %d samples, want %d", got, names-maxSeries)
	}
}

func TestNamesThatCannotBeReportedAreOther(t *testing.T) {
	s := newTestService()
	for _, name := range []string{"", "a\nb", string(make([]byte, 300)), "\xff", other} {
		if s.method(name) != s.rest {
			t.Errorf("method %q has counters of its own", name)
		}
		if m := s.method(get); m.replica(name) != m.rest {
			t.Errorf("replica %q has a place of its own", name)
		}
	}
}

// A call that looked its replica up just before it was forgotten still counts.
func TestSampleAfterForgettingIsReported(t *testing.T) {
	s := newTestService()
	m := s.method(get)
	late := m.replica("a")
	now := late.used.Add(idleTime)
	s.drain(now)
	if m.replica("a") == late {
		t.Fatal("the idle replica was not forgotten")
	}
	late.primary.completed.Record(time.Millisecond)
	m.replica("a").primary.completed.Record(time.Millisecond)
	if got := s.drain(now.Add(idleTime - 1)).Methods[get].Replicas["a"].Primary.Completed.Count(); got != 2 {
		t.Errorf("%d samples were reported, want both", got)
	}
}

func TestConcurrentCountsAreReportedOnce(t *testing.T) {
	s := newTestService()
	const goroutines, each = 8, 5000
	var work sync.WaitGroup
	for g := range goroutines {
		work.Go(func() {
			for i := range each {
				m := s.method(fmt.Sprint("/shop.Orders/M", i%7))
				s.noteCall(m, true)
				r := m.replica(fmt.Sprint("replica-", (i+g)%5))
				r.primary.completed.Record(time.Duration(i) * time.Microsecond)
				r.failed.Add(1)
			}
		})
	}
	ended := make(chan struct{})
	go func() { work.Wait(); close(ended) }()
	var calls, samples, failed uint64
	for more := true; more; {
		select {
		case <-ended:
			more = false
		default:
		}
		c, n, f := total(s.drain(time.Now()).Methods)
		calls, samples, failed = calls+c, samples+n, failed+f
	}
	if want := uint64(goroutines * each); calls != want || samples != want || failed != want {
		t.Errorf("drains add up to %d calls, %d samples, %d failures; want %d of each", calls, samples, failed, want)
	}
	if got := s.stats().Calls; got != goroutines*each {
		t.Errorf("stats show %d calls, want all %d", got, goroutines*each)
	}
}

// A skewed clock once gave a negative duration that wrapped into the top bucket.
// Intervals and a policy's life run on the monotonic clock, which steps of the
// wall clock do not move; an interval can be neither negative nor beyond bounds.
func TestTimesAreImmuneToTheWallClock(t *testing.T) {
	s := newTestService()
	s.renew(time.Now())
	for name, at := range map[string]time.Time{"drained": s.drained, "heard": s.heard, "start": s.start} {
		if !strings.Contains(at.String(), " m=") {
			t.Errorf("%s has no monotonic reading", name)
		}
	}
	now := s.drained
	for _, c := range []struct {
		at   time.Time
		want time.Duration
	}{
		{now.Add(-2 * time.Hour), 0},
		{now, maxInterval}, // 2 h later
		{now.Add(time.Second), time.Second},
		{now.Add(time.Second - 1), 0},
	} {
		if got := s.drain(c.at).Interval; got != c.want {
			t.Errorf("interval is %v, want %v", got, c.want)
		}
	}
	r := s.method(get).replica("a")
	for _, d := range []time.Duration{-1, 0, -2 * time.Hour} {
		r.primary.completed.Record(d)
	}
	sample := s.drain(now).Methods[get].Replicas["a"].Primary.Completed
	if q, ok := sample.Quantile(1); ok && q > time.Millisecond {
		t.Errorf("negative durations became a latency of %v", q)
	}
}

func BenchmarkRecord(b *testing.B) {
	s := newTestService()
	for i := range 20 {
		s.method(fmt.Sprint("/shop.Orders/M", i)).replica("10.0.0.1:80")
	}
	method, replica := "/shop.Orders/M7", "10.0.0.1:80"
	b.ReportAllocs()
	for b.Loop() {
		m := s.method(method)
		s.noteCall(m, true)
		m.replica(replica).primary.completed.Record(12 * time.Millisecond)
	}
}

func BenchmarkDrain(b *testing.B) {
	s := newTestService()
	m := s.method(get)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		for i := range 10 {
			m.replica(fmt.Sprint("replica-", i)).primary.completed.Record(12 * time.Millisecond)
		}
		s.drain(now)
	}
}

// A call goes by what the policy of its start says of its method; where many names
// share a method's counters, by its own name.
func TestLawOfMethod(t *testing.T) {
	s := testService(t, nil)
	slow := policy.Method{Delay: 30 * ms}
	first := &policy.Policy{Default: policy.Method{Delay: ms}, Methods: map[string]policy.Method{"/a.B/C": slow}}
	second := &policy.Policy{Default: policy.Method{Delay: 2 * ms}}
	m := s.method("/a.B/C")
	for range 2 {
		if got := m.under(first, "/a.B/C").Delay; got != slow.Delay {
			t.Errorf("delay %v, want the first policy's of 30ms", got)
		}
	}
	if got := m.under(second, "/a.B/C").Delay; got != 2*ms {
		t.Errorf("delay %v, want the second policy's of 2ms", got)
	}
	for range 2 {
		for name, want := range map[string]time.Duration{"/a.B/C": slow.Delay, "/a.B/D": ms} {
			if got := s.rest.under(first, name).Delay; got != want {
				t.Errorf("%s under other: delay %v, want %v", name, got, want)
			}
		}
	}
}
