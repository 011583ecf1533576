package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
)

// The whole way: real calls are measured, reported, decided on, and the policy
// that comes back hedges them within its budget.
func TestCallsAreHedgedByWhatTheyShow(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		a := w.app("client-1")
		defer a.close()
		a.load(200, 4*time.Second)
		_, p := a.inForce()
		if d := p.Methods[get].Delay; d < 10*time.Millisecond || d > 30*time.Millisecond {
			t.Fatalf("delay %v, want about the 95th percentile of 10 to 16 ms", d)
		}
		a.load(200, 4*time.Second)
		s := a.client.Stats()[0]
		if s.Hedges == 0 || s.Wins == 0 || float64(s.Hedges) > .05*float64(s.Safe) {
			t.Errorf("%d hedges of %d calls, %d wins; want some, and at most 5%%", s.Hedges, s.Safe, s.Wins)
		}
		time.Sleep(2 * time.Second)
		m := w.metrics()
		set := `tenant="default",service="orders",method="/shop.Orders/Get"`
		m.want("hedged_calls_total", set, float64(s.Calls))
		m.want("hedged_hedges_total", set, float64(s.Hedges))
		m.want("hedged_wins_total", set, float64(s.Wins))
		if c := w.client("client-1"); !c.Streaming || len(c.Subscriptions) != 1 || !c.Subscriptions[0].Current ||
			c.Subscriptions[0].Generation.GetNumber() != a.client.Stats()[0].Generation.Number {
			t.Errorf("client: %v", c)
		}
	})
}

// A step in latency reaches the client's policy within a second, by reports
// that go ahead of the cadence and are decided on at once.
func TestStepInLatencyReachesClientsEarly(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		a := w.app("client-1")
		defer a.close()
		a.load(300, 4*time.Second)
		_, p := a.inForce()
		before := p.Methods[get].Delay
		if before == 0 {
			t.Fatal("no delay before the step")
		}
		a.latency.Store(int64(40 * time.Millisecond))
		began := time.Now()
		var followed time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 300 {
				if _, p := a.inForce(); p.Methods[get].Delay >= 40*time.Millisecond {
					followed = time.Since(began)
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		a.load(300, 3*time.Second)
		<-done
		if followed == 0 || followed > time.Second {
			_, p := a.inForce()
			t.Errorf("from %v the delay came to %v; it followed the step after %v, want under 1 s", before, p.Methods[get].Delay, followed)
		}
		if early := w.metrics().value("hedged_report_frames_early_total", ""); early == 0 {
			t.Error("no early report")
		}
		t.Logf("the step was followed after %v", followed)
	})
}

// An early report is decided on at once, not at the next tick.
func TestEarlyReportIsDecidedOnAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		s := w.subscribe("node", orders.String(), "")
		defer s.close()
		_, _, nonce := s.one()
		s.answer(nonce, "")
		r := w.report(clientSource("client-1"))
		defer r.close()
		began := time.Now()
		f := frame(1, "orders", get, 2000, 10*time.Millisecond)
		f.Early = true
		r.take(f)
		if p, _, _ := s.one(); p.Methods[get].Delay == 0 || !time.Now().Equal(began) {
			t.Errorf("policy %+v after %v, want a delay at once", p, time.Since(began))
		}
	})
}

// Off reaches every client at once, and those whose calls are under way.
func TestKillSwitch(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		a := w.app("client-1")
		defer a.close()
		a.load(200, 4*time.Second)
		a.latency.Store(int64(time.Second)) // every call would be hedged now
		began := time.Now()
		ended := make(chan error, 20)
		for range cap(ended) {
			go func() { ended <- a.conn.Invoke(context.Background(), get, &emptypb.Empty{}, &emptypb.Empty{}) }()
		}
		time.Sleep(time.Millisecond) // all are sent, none is eligible yet
		hedges := a.client.Stats()[0].Hedges
		w.mustOverride("", off)
		synctest.Wait()
		if s := a.client.Stats()[0]; s.Mode != policy.ModeOff || time.Since(began) > 5*time.Millisecond {
			t.Errorf("mode %v after %v, want off at once", s.Mode, time.Since(began))
		}
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if s := a.client.Stats()[0]; s.Hedges != hedges {
			t.Errorf("%d hedges after off", s.Hedges-hedges)
		}
	})
}

// At shutdown 500 idle policy streams and as many report streams, some of which
// never said who they are, end with a status that clients retry; the state is
// saved, all within the limit.
func TestShutdownEndsIdleStreams(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		var policies []*subscriber
		var reports []hedgedv1.ReportService_ReportClient
		for i := range 500 {
			policies = append(policies, w.subscribe(fmt.Sprint(i), orders.String(), ""))
			if i%50 == 0 {
				r, err := hedgedv1.NewReportServiceClient(w.conn).Report(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				reports = append(reports, r)
				continue
			}
			reports = append(reports, w.report(clientSource(fmt.Sprint(i))).stream)
		}
		synctest.Wait()
		m := w.metrics()
		m.want("hedged_policy_streams", `kind="delta"`, 500)
		m.want("hedged_report_streams", "", 500)
		w.mustOverride("orders", off)
		if code, body := w.http("/readyz"); code != 200 || body != "ready\n" {
			t.Errorf("ready: %d %q", code, body)
		}
		d := w.d
		if took, limit := w.end(), w.cfg.ShutdownTimeout/4; took > limit || took < limit/2 {
			t.Errorf("the shutdown took %v, want streams that are idle to end all over %v", took, limit)
		}
		for i := range policies {
			if err := policies[i].failure(); status.Code(err) != codes.Unavailable {
				t.Fatalf("policy stream %d: %v, want Unavailable", i, err)
			}
			if _, err := reports[i].Recv(); status.Code(err) != codes.Unavailable {
				t.Fatalf("report stream %d: %v, want Unavailable", i, err)
			}
		}
		w.d = d
		if code, _ := w.http("/readyz"); code != 503 {
			t.Errorf("ready after the end: %d, want 503", code)
		}
		w.start()
		if m := w.service("orders").Policy.Mode; m != off {
			t.Errorf("mode %v after the restart: the state was not saved", m)
		}
	})
}

// The kill switch reaches a client that never answers what it was sent, at once;
// what loosens waits for its answer.
func TestOffDoesNotWaitForAnswers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		s := w.subscribe("node", orders.String(), "")
		defer s.close()
		s.one()
		w.mustOverride("orders", off)
		p, _, nonce := s.one()
		if p.Mode != policy.ModeOff {
			t.Errorf("mode %v, want off", p.Mode)
		}
		w.mustOverride("orders", hedgedv1.Mode_MODE_ACTIVE)
		w.tick()
		if got := s.take(); len(got) != 0 {
			t.Errorf("loosened for a client that does not answer: %v", got)
		}
		time.Sleep(5 * time.Second)
		w.metrics().want("hedged_policy_unanswered_seconds", "", (5*time.Second + tickEvery + time.Millisecond).Seconds())
		s.answer(nonce, "")
		if p, _, _ := s.one(); p.Mode != policy.ModeActive {
			t.Errorf("mode %v, want active", p.Mode)
		}
	})
}

// Policies have a discovery service of their own beside the aggregated one.
func TestPolicyDiscoveryService(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
			"/hedged.v1.PolicyDiscoveryService/DeltaServicePolicies")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{orders.String()}}); err != nil {
			t.Fatal(err)
		}
		var r discovery.DeltaDiscoveryResponse
		if err := stream.RecvMsg(&r); err != nil {
			t.Fatal(err)
		}
		if len(r.Resources) != 1 || r.Resources[0].Name != orders.String() {
			t.Errorf("got %v, want the policy of orders", &r)
		}
	})
}

// A client that does not read its answers cannot hold the shutdown up.
func TestShutdownDoesNotWaitForAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stream, err := hedgedv1.NewReportServiceClient(w.conn).Report(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Source{Source: clientSource("deaf")}}); err != nil {
			t.Fatal(err)
		}
		// Refusals are long, and fill what the client's window takes.
		f := frame(1, "orders", strings.Repeat("m", 200)+"\x01", 1, time.Millisecond)
		go func() {
			for stream.Send(&hedgedv1.ReportRequest{Message: &hedgedv1.ReportRequest_Frame{Frame: f}}) == nil {
			}
		}()
		time.Sleep(time.Second)
		if took := w.end(); took == 0 || took > w.cfg.ShutdownTimeout {
			t.Errorf("the shutdown took %v of at most %v", took, w.cfg.ShutdownTimeout)
		}
	})
}

// A restart serves the stored policy at once under the same generation: a client
// that holds it gets nothing, and one that does not gets the same. The next
// change is numbered above.
func TestRestartServesTheStoredPolicy(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		a := w.app("client-1")
		defer a.close()
		a.load(200, 4*time.Second)
		time.Sleep(time.Second)
		n, before := a.inForce()
		if before.Methods[get].Delay == 0 {
			t.Fatal("no delay before the restart")
		}
		w.end()
		time.Sleep(10 * time.Second)
		w.start()
		s := w.subscribe("new", orders.String(), "")
		p, _, nonce := s.one()
		s.answer(nonce, "")
		if p.Generation != before.Generation || p.Methods[get].Delay != before.Methods[get].Delay {
			t.Errorf("after the restart: %v with %v, want %v with %v", p.Generation, p.Methods[get].Delay, before.Generation, before.Methods[get].Delay)
		}
		time.Sleep(10 * time.Second) // the client is back, and silent
		if again, p := a.inForce(); again != n || p.Generation != before.Generation {
			t.Errorf("%d new policies at the client, the last %v; want none", again-n, p.Generation)
		}
		if c := w.client("client-1"); !c.Streaming || len(c.Subscriptions) != 1 || !c.Subscriptions[0].Current {
			t.Errorf("the client is not back: %v", c)
		}
		if got := s.take(); len(got) != 0 {
			t.Errorf("pushed without data: %v", got)
		}
		defer s.close()
		w.mustOverride("orders", off)
		if p, _, _ := s.one(); p.Generation.Epoch != before.Generation.Epoch || p.Generation.Number <= before.Generation.Number {
			t.Errorf("generation %v after %v, want the same epoch and a higher number", p.Generation, before.Generation)
		}
		if _, p := a.inForce(); p.Mode != policy.ModeOff {
			t.Errorf("the client did not take the policy that followed: %+v", p)
		}
	})
}

// An off that is newer than the stored policy holds from the first moment after
// a restart: what was active is never served.
func TestRestartUnderOffNeverServesActive(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		p, version := w.storedPolicy()
		if p.Mode != policy.ModeActive {
			t.Fatalf("stored: %+v", p)
		}
		w.end()
		// As after a crash between the two writes: the command is saved, the
		// policy that it led to is not.
		st, err := state.Open(w.cfg.StateDir, w.cfg.Logger, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		o := state.Override{Key: orders, HasMode: true, Mode: policy.ModeOff}
		if _, durable, err := st.SetOverride(t.Context(), o, control.DefaultConfig().Target); err != nil || !durable {
			t.Fatal(durable, err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		w.start()
		for _, held := range []string{"", version} {
			s := w.subscribe("node", orders.String(), held)
			if got, _, _ := s.one(); got.Mode != policy.ModeOff || got.Generation.Compare(p.Generation) <= 0 {
				t.Errorf("first policy after the restart: %+v, want off and newer", got)
			}
			s.close()
		}
	})
}

// storedPolicy makes orders have a policy with a delay, and returns it with its version.
func (w *world) storedPolicy() (*policy.Policy, string) {
	w.t.Helper()
	r := w.report(clientSource("client-1"))
	defer r.close()
	r.take(frame(1, "orders", get, 2000, 10*time.Millisecond))
	w.tick()
	s := w.subscribe("node", orders.String(), "")
	defer s.close()
	p, version, nonce := s.one()
	s.answer(nonce, "")
	return p, version
}

// A client holds a policy that was published, but not saved before the daemon was
// killed. The stored one before it gets a number above, once, so that the client
// takes what the daemon says is in force.
func TestPolicyThatWasNotSavedIsSuperseded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		stored, _ := w.storedPolicy()
		w.end()
		w.start()
		s := w.subscribe("client-1", orders.String(), "")
		defer s.close()
		first, _, nonce := s.one()
		s.answer(nonce, "")
		if first.Generation != stored.Generation {
			t.Fatalf("generation %v after the restart, want %v", first.Generation, stored.Generation)
		}
		r := w.report(clientSource("client-1"))
		defer r.close()
		report := func(seq uint64, number uint64) {
			f := frame(seq, "orders", get, 1, time.Millisecond)
			f.Generation = wire.GenerationToProto(policy.Generation{Epoch: stored.Generation.Epoch, Number: number})
			r.take(f)
			w.tick()
		}
		report(1, stored.Generation.Number)
		if got := s.take(); len(got) != 0 {
			t.Errorf("pushed to a client that holds what is stored: %v", got)
		}
		report(2, stored.Generation.Number+1)
		p, _, nonce := s.one()
		s.answer(nonce, "")
		if p.Generation.Number <= stored.Generation.Number+1 || p.Methods[get].Delay != stored.Methods[get].Delay {
			t.Errorf("got %v with %v, want a number above %d with %v", p.Generation, p.Methods[get].Delay,
				stored.Generation.Number+1, stored.Methods[get].Delay)
		}
		report(3, 1<<60) // a client that lies
		if got := s.take(); len(got) != 0 {
			t.Errorf("numbered anew once more: %v", got)
		}
	})
}

// A client that holds a policy of a higher epoch than the store's, which was
// lost and made anew under a clock that was set back, gets policies that
// supersede it. An epoch of the far future is taken for a mistake.
func TestHigherEpochOfAClientIsSuperseded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		s := w.subscribe("client-1", orders.String(), "")
		defer s.close()
		first, _, nonce := s.one()
		s.answer(nonce, "")
		r := w.report(clientSource("client-1"))
		defer r.close()
		held := policy.Generation{Epoch: first.Generation.Epoch + uint64(time.Hour.Milliseconds()), Number: 900}
		f := frame(1, "orders", get, 1, time.Millisecond)
		f.Generation = wire.GenerationToProto(held)
		r.take(f)
		p, _, nonce := s.one()
		if p.Generation.Compare(held) <= 0 || p.Mode != first.Mode {
			t.Errorf("generation %v, want above the client's %v", p.Generation, held)
		}
		s.answer(nonce, "")

		f = frame(2, "orders", get, 1, time.Millisecond)
		f.Generation = wire.GenerationToProto(policy.Generation{Epoch: p.Generation.Epoch + uint64((48 * time.Hour).Milliseconds()), Number: 1})
		r.take(f)
		w.tick()
		if got := s.take(); len(got) != 0 {
			t.Errorf("an epoch of the far future moved ours: %v", got)
		}
	})
}

// store puts a policy into the state of a daemon that is down, as key's.
func (w *world) store(key policy.Key, p *policy.Policy) {
	w.t.Helper()
	st, err := state.Open(w.cfg.StateDir, w.cfg.Logger, time.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	blob, err := proto.Marshal(&hedgedv1.ServiceRecord{Policy: wire.PolicyToProto(p, time.Now())})
	if err != nil {
		w.t.Fatal(err)
	}
	st.SavePolicy(key, blob)
	if err := st.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// A store that lost its numbers, but not its policies, numbers above them.
func TestLostNumbersContinueAboveTheStoredPolicy(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		stored, _ := w.storedPolicy()
		w.end()
		ahead := *stored
		ahead.Generation.Epoch += uint64(time.Hour.Milliseconds())
		w.store(orders, &ahead)
		w.start()
		s := w.subscribe("node", orders.String(), "")
		defer s.close()
		p, _, nonce := s.one()
		if p.Generation != ahead.Generation {
			t.Errorf("generation %v, want the stored %v", p.Generation, ahead.Generation)
		}
		s.answer(nonce, "")
		w.mustOverride("orders", off)
		if p, _, _ := s.one(); p.Mode != policy.ModeOff || p.Generation.Compare(ahead.Generation) <= 0 {
			t.Errorf("after it: %v %v, want off above %v", p.Mode, p.Generation, ahead.Generation)
		}
	})
}

// A stored policy that cannot be used is left aside; the service starts afresh.
func TestStoredPolicyOfNoUse(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		stored, _ := w.storedPolicy()
		w.end()
		outOfBounds, foreign := *stored, *stored
		outOfBounds.Budget.Ratio = 7
		foreign.Key.Service = "cart"
		for _, bad := range []*policy.Policy{&outOfBounds, &foreign} {
			w.store(orders, bad)
			w.start()
			s := w.subscribe("node", orders.String(), "")
			if p, _, _ := s.one(); len(p.Methods) != 0 || p.Generation.Compare(stored.Generation) <= 0 {
				t.Errorf("policy %+v, want a new one without delays", p)
			}
			s.close()
			w.end()
		}
	})
}

// damage writes rubbish over files of the state.
func (w *world) damage(files ...string) {
	w.t.Helper()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(w.cfg.StateDir, f), []byte("not a store"), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A damaged state file is set aside and served on; clients get policies that
// supersede what they hold.
func TestDamagedStateIsSetAside(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		stored, version := w.storedPolicy()
		w.mustOverride("orders", shadow)
		w.end()
		w.damage(state.StoreFile)
		time.Sleep(time.Second)
		w.start()
		s := w.subscribe("node", orders.String(), version)
		defer s.close()
		if p, _, _ := s.one(); p.Generation.Epoch <= stored.Generation.Epoch || p.Mode != policy.ModeShadow {
			t.Errorf("policy %v %v, want a later epoch and the shadow of the second copy", p.Generation, p.Mode)
		}
	})
}

// Configuration out of bounds is refused with field, value and bound.
func TestConfigOutOfBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.GRPCAddr = "0.0.0.0:1" }, `grpc address: "0.0.0.0:1" is not a loopback address`},
		{func(c *Config) { c.HTTPAddr = ":80" }, `http address: ":80" is not a loopback address`},
		{func(c *Config) { c.HTTPAddr = "localhost" }, `http address: "localhost": `},
		{func(c *Config) { c.GRPCAddr = "example.com:1" }, "not a loopback address"},
		{func(c *Config) { c.StateDir = "" }, "state directory: is empty"},
		{func(c *Config) { c.Cadence = time.Millisecond }, "cadence: 1ms, want 100ms to 1m"},
		{func(c *Config) { c.ShutdownTimeout = 0 }, "shutdown timeout: 0s, want more than 0"},
		{func(c *Config) { c.Services.Default.Target = 2 }, "target: 2, want 0.001 to 0.5"},
		{func(c *Config) { c.Services.Rules = []ServiceRule{{Config: control.DefaultConfig()}} }, `service "": service: is empty`},
		{func(c *Config) { c.Services.Rules = []ServiceRule{{Pattern: "orders"}} }, `service "orders": target: 0`},
	} {
		cfg := DefaultConfig()
		cfg.StateDir = t.TempDir()
		c.change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}
