package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/policy"
)

const listMethod = "/shop.Orders/List"

// reason is a guard as metrics name it.
func reason(r *hedgedv1.Reason) string {
	return strings.ToLower(strings.TrimPrefix(r.GetCode().String(), "REASON_CODE_"))
}

// eventful has orders reported for a while, by a client and a server: two methods,
// and a replica that is slow for so long that it shows. end closes the streams.
func (w *world) eventful() (end func()) {
	r := w.report(clientSource("client-1"))
	servers := w.report(serverSource("10.0.0.1:80"))
	for seq := uint64(1); seq <= 15; seq++ { // long enough for a replica to show that it is slow
		f := frame(seq, "orders", get, 600, 10*time.Millisecond)
		f.Methods[listMethod] = frame(seq, "orders", listMethod, 300, 20*time.Millisecond).Methods[listMethod]
		for name, m := range f.Methods {
			m.Replicas["10.0.0.3:80"] = frame(seq, "orders", name, 300, time.Second).Methods[name].Replicas["10.0.0.0:80"]
			m.Eligible, m.Hedges, m.CancelledUnsent, m.Wins, m.Failures = 30, 20, 1, 15, 2
			m.Suppressed = map[string]uint64{"budget": 7, "throttle": 3}
		}
		f.Dropped = 5
		r.take(f)
		servers.take(&hedgedv1.Frame{
			Sequence: seq, Service: "default/orders", Interval: durationpb.New(time.Second),
			Methods: map[string]*hedgedv1.MethodReport{
				get: {Server: &hedgedv1.ServerReport{Attempts: 300, Hedges: 10, Cancelled: 4, Wasted: durationpb.New(time.Second / 4)}},
			},
		})
		time.Sleep(time.Second)
	}
	return func() {
		r.close()
		servers.close()
	}
}

// What is scraped is what AdminService says of the same moment, and it is all
// that operators watch.
func TestMetricsAgreeWithAdmin(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		end := w.eventful()
		defer end()
		m, s := w.metrics(), w.service("orders")

		of := `tenant="default",service="orders"`
		m.want("hedged_services", "", 1)
		m.want("hedged_extra_load_ratio", of, s.Load.GetExtraLoad())
		m.want("hedged_extra_load_target_ratio", of, s.Target)
		m.want("hedged_mode", of+`,mode="active"`, 1)
		m.want("hedged_mode", of+`,mode="shadow"`, 0)
		m.want("hedged_mode", of+`,mode="off"`, 0)
		m.want("hedged_policy_generation_epoch", of, float64(s.Policy.Generation.Epoch))
		m.want("hedged_policy_generation_number", of, float64(s.Policy.Generation.Number))
		m.want("hedged_clients", of, float64(s.Clients))
		m.want("hedged_reason", of+`,reason="`+reason(s.Policy.Reason)+`"`, 1)
		if len(s.Methods) != 2 || s.Load.GetExtraLoad() == 0 {
			t.Fatalf("status: %v", s)
		}
		for _, method := range s.Methods {
			set := of + `,method="` + method.Method + `"`
			m.want("hedged_method_extra_load_ratio", set, method.Load.GetExtraLoad())
			m.want("hedged_eligible_ratio", set, method.Load.GetEligibleRate())
			m.want("hedged_delay_seconds", set, method.Policy.Delay.AsDuration().Seconds())
			m.want("hedged_method_reason", set+`,reason="`+reason(method.Policy.Reason)+`"`, 1)
			m.want("hedged_eligible_calls_total", set, 15*30)
			m.want("hedged_hedges_total", set, 15*20)
			m.want("hedged_hedges_unsent_total", set, 15)
			m.want("hedged_wins_total", set, 15*15)
			m.want("hedged_failed_calls_total", set, 15*2)
			m.want("hedged_suppressed_total", set+`,reason="budget"`, 15*7)
			m.want("hedged_suppressed_total", set+`,reason="throttle"`, 15*3)
			m.want("hedged_suppressed_total", set+`,reason="mode"`, 0)
		}
		set := of + `,method="` + get + `"`
		m.want("hedged_calls_total", set, 15*600)
		m.want("hedged_safe_calls_total", set, 15*600)
		m.want("hedged_server_attempts_total", set, 15*300)
		m.want("hedged_server_hedges_total", set, 15*10)
		m.want("hedged_server_cancelled_total", set, 15*4)
		m.want("hedged_server_wasted_seconds_total", set, 15./4)
		states := map[string]float64{}
		for _, r := range s.Replicas {
			name := strings.ToLower(strings.TrimPrefix(r.Policy.State.String(), "REPLICA_STATE_"))
			states[name]++
			if name != "serving" {
				m.want("hedged_replica_share_ratio", of+`,replica="`+r.Replica+`"`, r.Policy.Share)
			}
		}
		if states["serving"] != 3 || states["probation"] != 1 {
			t.Errorf("replicas by state: %v, want the slow one on probation", states)
		}
		for _, state := range []string{"serving", "probation", "recovering"} {
			m.want("hedged_replicas", of+`,state="`+state+`"`, states[state])
		}
		m.want("hedged_report_streams", "", 2)
		m.want("hedged_report_sources", "", 2)
		m.want("hedged_report_frames_total", "", 30)
		m.want("hedged_report_observations_dropped_total", "", 15*5)
		m.want("hedged_policy_streams", `kind="delta"`, 0)
		m.want("hedged_storage_failing", "", 0)
		m.want("hedged_overrides_lost", "", 0)
		m.want("hedged_storage_failures_total", "", 0)
		if m.value("hedged_storage_writes_total", "") == 0 {
			t.Error("no writes to the store")
		}
		m.want("hedged_build_info", `version="test"`, 1)
		if m.value("go_goroutines", "") == 0 {
			t.Error("no goroutines")
		}
	})
}

// Names are data: whatever is printable in one comes out as a valid label.
func TestMetricsQuoteNames(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		defer r.close()
		r.take(frame(1, `a"b\n{}= `, `GET /route/{id}"`, 10, time.Millisecond))
		w.tick()
		w.metrics().want("hedged_calls_total", `tenant="default",service="a\"b\\n{}= ",method="GET /route/{id}\""`, 10)
	})
}

// Methods containing ids, and 100,000 replicas added and removed: the series
// stay within their bounds with the rest under "other", the series of a replica
// that is gone vanish, and the heap stays flat.
func TestNamesWithoutEndMakeBoundedSeries(t *testing.T) { // not parallel: it measures the heap
	bubble(t, func(t *testing.T, w *world) {
		const frames, each, ids = 20, 5000, 500
		r := w.report(clientSource("client-1"))
		defer r.close()
		template := frame(1, "orders", get, 3, 10*time.Millisecond).Methods[get].Replicas["10.0.0.0:80"]
		failed := &hedgedv1.ReplicaReport{Failed: 1}
		r.take(frame(1, "orders", get, 60, 10*time.Millisecond))
		empty := w.metrics().count
		var half, peak int
		var heap uint64
		for i := range uint64(frames) {
			f := frame(i+2, "orders", get, 60, 10*time.Millisecond)
			for j := range each {
				n := int(i)*each + j
				name := fmt.Sprintf("10.%d.%d.%d:80", n>>16, n>>8&255, n&255)
				f.Methods[get].Replicas[name] = failed
				if j%10 == 0 {
					f.Methods[get].Replicas[name] = template
				}
			}
			for j := range ids {
				f.Methods[fmt.Sprintf("/shop.Orders/Get-%d", int(i)*ids+j)] = &hedgedv1.MethodReport{Calls: 1, Safe: 1, Hedges: 1}
			}
			r.take(f)
			w.tick()
			if i%5 == 4 {
				m := w.metrics()
				peak = max(peak, m.count)
				if i == frames/2-1 {
					half, heap = m.count, liveHeap()
				}
			}
		}
		m := w.metrics()
		// 100 methods and the others, each with 4 gauges and 12 counters, one of
		// which has 8 reasons; some replicas that are slow by chance.
		const most = (maxMethodRows + 1) * (4 + 12 + 7)
		if added := max(peak, m.count) - empty; added > most+maxReplicaSeries {
			t.Errorf("%d series more than at the start (%d halfway), want at most %d", added, half-empty, most+maxReplicaSeries)
		}
		var calls float64
		for _, n := range m.series["hedged_calls_total"] {
			calls += n
		}
		other := `tenant="default",service="orders",method="other"`
		if want := float64(60 + frames*(60+ids)); calls != want {
			t.Errorf("%g calls in all series together, want %g", calls, want)
		}
		m.want("hedged_calls_total", other, frames*ids-(maxMethodRows-1))
		if v := m.value("hedged_method_extra_load_ratio", other); v != 1 {
			t.Errorf("extra load of the others %g, want 1", v)
		}
		m.value("hedged_calls_total", `tenant="default",service="orders",method="`+get+`"`)
		if n := len(w.service("orders").Replicas); n > 1000 {
			t.Errorf("%d replicas in the status", n)
		}
		if grown := int64(liveHeap()) - int64(heap); grown > 4<<20 {
			t.Errorf("the heap grew by %d bytes in the second half", grown)
		}

		// They go, and three that there was no place for are seen.
		for i := range uint64(8) {
			f := frame(frames+i+2, "orders", get, 60, 10*time.Millisecond)
			f.Methods[get].Replicas = map[string]*hedgedv1.ReplicaReport{"new-1": template, "new-2": template, "new-3": template}
			r.take(f)
			time.Sleep(5 * time.Second)
		}
		m = w.metrics()
		m.want("hedged_replicas", `tenant="default",service="orders",state="serving"`, 3)
		if n := len(m.series["hedged_replica_share_ratio"]); n != 0 {
			t.Errorf("%d series of replicas that are gone", n)
		}
	})
}

// However many replicas are out of normal service, few have series of their own;
// the others are counted.
func TestSeriesByReplicaAreBounded(t *testing.T) {
	t.Parallel()
	s := &snapshot{status: control.Status{Key: orders}}
	for i := range 340 {
		s.status.Replicas = append(s.status.Replicas, control.ReplicaStatus{
			Name: fmt.Sprint(i), Policy: policy.Replica{State: policy.ReplicaProbation, Share: .02},
		})
	}
	var e exposition
	writeReplicas(&e, []scraped{scrape(s)})
	got, err := readExposition(e.text.String())
	if err != nil {
		t.Fatal(err)
	}
	got.t = t
	if n := len(got.series["hedged_replica_share_ratio"]); n != maxReplicaSeries {
		t.Errorf("%d series, want %d", n, maxReplicaSeries)
	}
	got.want("hedged_replicas", `tenant="default",service="orders",state="probation"`, 340)
}

// A method that is not reported any more has no series after a while, and makes
// room for another one.
func TestSeriesOfAMethodThatIsGoneVanish(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		defer r.close()
		r.take(frame(1, "orders", get, 10, time.Millisecond))
		w.tick()
		if rows := w.d.rows.Load(); rows != 1 {
			t.Errorf("%d rows are taken, want 1", rows)
		}
		time.Sleep(forgetTotals + quietTick)
		for name, series := range w.metrics().series {
			for set := range series {
				if strings.Contains(set, "method=") {
					t.Errorf("%s{%s} is left", name, set)
				}
			}
		}
		if rows := w.d.rows.Load(); rows != 0 {
			t.Errorf("%d rows are taken, want none", rows)
		}
	})
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one freed of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// All services together have a bounded number of methods with series.
func TestMethodRowsOfAllServicesAreBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.d.rows.Store(maxAllMethodRows - 1)
		r := w.report(clientSource("client-1"))
		defer r.close()
		f := frame(1, "orders", get, 10, time.Millisecond)
		f.Methods["/a"], f.Methods["/b"] = f.Methods[get], f.Methods[get]
		r.take(f)
		w.tick()
		m := w.metrics()
		if n := len(m.series["hedged_calls_total"]); n != 2 {
			t.Errorf("%d series, want one method and the others", n)
		}
		m.want("hedged_calls_total", `tenant="default",service="orders",method="other"`, 20)
		if rows := w.d.rows.Load(); rows != maxAllMethodRows {
			t.Errorf("%d rows are taken, want %d", rows, maxAllMethodRows)
		}
	})
}

// A service that nothing is heard of is decided on rarely, and as always again
// once something is.
func TestQuietServiceIsDecidedOnRarely(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		defer r.close()
		o := w.d.owners[orders]
		decisions := func(long time.Duration) (n int) {
			last := o.snapshot.Load()
			for until := time.Now().Add(long); time.Now().Before(until); time.Sleep(tickEvery / 5) {
				if now := o.snapshot.Load(); now != last {
					n++
					last = now
				}
			}
			return n
		}
		r.take(frame(1, "orders", get, 2000, 10*time.Millisecond))
		if n := decisions(10 * time.Second); n < 39 || n > 41 {
			t.Errorf("%d decisions in 10 s, want 40", n)
		}
		time.Sleep(quietAfter)
		if p := o.snapshot.Load().policy; p.Methods[get].Delay != 0 {
			t.Errorf("the delay of %v outlived its data", p.Methods[get].Delay)
		}
		if n := decisions(5 * time.Minute); n > 11 {
			t.Errorf("%d decisions in 5 quiet minutes, want at most 11", n)
		}
		r.take(&hedgedv1.Frame{Sequence: 2, Service: "default/orders", Interval: durationpb.New(time.Second)})
		if n := decisions(time.Minute); n > 3 {
			t.Errorf("%d decisions in a minute after a sign of life, want at most 3", n)
		}
		r.take(frame(3, "orders", get, 2000, 10*time.Millisecond))
		w.tick()
		if p := o.snapshot.Load().policy; p.Methods[get].Delay == 0 {
			t.Error("no delay within a tick of new data")
		}
	})
}

// The HTTP port serves what it should, over its own listener.
func TestHTTP(t *testing.T) {
	t.Parallel()
	var listener *bufconn.Listener
	var addr string
	bubble(t, func(t *testing.T, w *world) {
		synctest.Wait()
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) }}
		defer transport.CloseIdleConnections()
		for _, c := range []struct {
			method, path string
			code         int
			body         string
		}{
			{"GET", "/metrics", 200, "# TYPE hedged_services gauge\nhedged_services 1\n"},
			{"GET", "/healthz", 200, `{"status":"ok"}`},
			{"GET", "/readyz", 200, "ready"},
			{"POST", "/metrics", 405, ""},
			{"GET", "/", 421, `host: "hedged" is not this daemon`},
			{"GET", "/nothing", 421, ""},
		} {
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://hedged"+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != c.code || !strings.Contains(string(body), c.body) {
				t.Errorf("%s %s: %d %.100q, %v; want %d with %q", c.method, c.path, resp.StatusCode, body, err, c.code, c.body)
			}
		}
	}, func(c *Config) {
		addr = c.HTTPAddr
		listen := c.Listen
		c.Listen = func(network, a string) (net.Listener, error) {
			l, err := listen(network, a)
			if a == addr {
				listener = l.(*bufconn.Listener)
			}
			return l, err
		}
	})
}

// What a store has lost with both copies of its overrides is said until an
// operator speaks.
func TestLostOverridesAreSaid(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.mustOverride("orders", active)
		w.end()
		w.damage(state.StoreFile, state.OverridesFile)
		w.start()
		if p := w.service("orders").Policy; p.Mode != shadow {
			t.Errorf("mode %v, want shadow until an operator says on", p.Mode)
		}
		w.metrics().want("hedged_overrides_lost", "", 1)
		if code, body := w.http("/healthz"); code != 200 || body != `{"status":"degraded","overrides_lost":true}`+"\n" {
			t.Errorf("health: %d %s", code, body)
		}
		w.mustOverride("", active)
		w.metrics().want("hedged_overrides_lost", "", 0)
		if p := w.service("orders").Policy; p.Mode != active {
			t.Errorf("mode %v after on", p.Mode)
		}
	})
}
