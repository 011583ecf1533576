package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/policy"
)

const (
	off     = hedgedv1.Mode_MODE_OFF
	shadow  = hedgedv1.Mode_MODE_SHADOW
	active  = hedgedv1.Mode_MODE_ACTIVE
	cleared = hedgedv1.Mode_MODE_UNSPECIFIED
)

// The last command wins, for a service and for all; saying the same again is no
// error and changes nothing.
func TestLastOverrideWins(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		defer r.close()
		r.take(frame(1, "cart", get, 1, time.Millisecond)) // nobody configured it
		w.tick()
		for i, c := range []struct {
			service      string // empty: all
			mode         hedgedv1.Mode
			orders, cart hedgedv1.Mode
			changed      string
		}{
			{"cart", active, active, active, "default/cart"},
			{"cart", active, active, active, ""},
			{"", off, off, off, "default/cart default/orders"},
			{"", off, off, off, ""},
			{"orders", active, active, off, "default/orders"},
			{"default/cart", shadow, active, shadow, "default/cart"},
			{"", active, active, active, "default/cart"},
			{"", shadow, shadow, shadow, "default/cart default/orders"},
			{"cart", off, shadow, off, "default/cart"},
			{"cart", cleared, shadow, shadow, ""},
			{"", cleared, active, shadow, "default/orders"},
		} {
			got := w.mustOverride(c.service, c.mode)
			if !got.Durable || got.Warning != "" {
				t.Errorf("%d: durable %v, warning %q", i, got.Durable, got.Warning)
			}
			if o, k := w.service("orders").Policy.Mode, w.service("cart").Policy.Mode; o != c.orders || k != c.cart {
				t.Errorf("%d: %q %v: orders is %v and cart %v, want %v and %v", i, c.service, c.mode, o, k, c.orders, c.cart)
			}
			if changed := strings.Join(got.Changed, " "); c.changed != "" && changed != c.changed {
				t.Errorf("%d: %q %v: changed %q, want %q", i, c.service, c.mode, changed, c.changed)
			}
		}
		if o := w.service("orders").Override; o != nil {
			t.Errorf("override after it was cleared: %v", o)
		}
		w.mustOverride("", off)
		got, err := w.admin.GetStatus(t.Context(), &hedgedv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if o := got.AllOverride; o.GetMode() != off || o.GetAuthor() != "ada" || o.GetReason() != "drill" || o.GetSetAt().AsTime().IsZero() {
			t.Errorf("override of all: %v", o)
		}
		if got.Services != 2 || got.Clients != 1 || got.Epoch == 0 || got.StateDir != w.cfg.StateDir || got.Version != "test" {
			t.Errorf("status: %v", got)
		}
	})
}

// A target by override is in force, and only within its bounds.
func TestOverrideOfTheTarget(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		target := .01
		req := &hedgedv1.SetOverrideRequest{
			Scope:    &hedgedv1.SetOverrideRequest_Service{Service: "orders"},
			Override: &hedgedv1.Override{Mode: active, Target: &target},
		}
		if _, err := w.admin.SetOverride(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if got := w.service("orders"); got.Target != target || got.Policy.Budget.Ratio > target {
			t.Errorf("target %g, ratio %g, want %g and less", got.Target, got.Policy.Budget.Ratio, target)
		}
	})
}

// While the store fails, what tightens applies all the same and says that a
// restart would forget it; what loosens is refused. Saving resumes by itself.
func TestOverrideWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		// A directory in the place of the second copy, which cannot be replaced.
		w.mustOverride("orders", active)
		second := filepath.Join(w.cfg.StateDir, state.OverridesFile)
		if err := os.Remove(second); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(second, "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
		got := w.mustOverride("", off)
		if got.Durable || !strings.HasPrefix(got.Warning, "applied, not durable: ") || !slices.Equal(got.Changed, []string{"default/orders"}) {
			t.Errorf("off: %v", got)
		}
		if _, err := w.override("", active); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not saved, so not applied") {
			t.Errorf("on: %v, want a refusal", err)
		}
		if m := w.service("orders").Policy.Mode; m != off {
			t.Errorf("mode %v, want off", m)
		}
		w.metrics().want("hedged_storage_failing", "", 1)
		if code, body := w.http("/healthz"); code != 200 || !strings.Contains(body, `"status":"degraded"`) || !strings.Contains(body, "storage_error") {
			t.Errorf("health: %d %s", code, body)
		}
		if st, err := w.admin.GetStatus(t.Context(), &hedgedv1.GetStatusRequest{}); err != nil || st.StorageError == "" {
			t.Errorf("status: %v, %v", st, err)
		}

		if err := os.RemoveAll(second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.metrics().want("hedged_storage_failing", "", 0)
		if code, body := w.http("/healthz"); code != 200 || body != "{\"status\":\"ok\"}\n" {
			t.Errorf("health: %d %s", code, body)
		}
		w.end()
		w.start()
		if m := w.service("orders").Policy.Mode; m != off {
			t.Errorf("mode %v after a restart, want the off that was saved later", m)
		}
		if got := w.mustOverride("", active); !got.Durable {
			t.Errorf("on: %v", got)
		}
	})
}

// Overrides out of bounds are refused with the field, its value and the bound.
func TestOverrideOutOfBounds(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		service := func(name string) *hedgedv1.SetOverrideRequest {
			return &hedgedv1.SetOverrideRequest{
				Scope:    &hedgedv1.SetOverrideRequest_Service{Service: name},
				Override: &hedgedv1.Override{Mode: off},
			}
		}
		with := func(change func(*hedgedv1.Override)) *hedgedv1.SetOverrideRequest {
			r := service("orders")
			change(r.Override)
			return r
		}
		number := func(x float64) *float64 { return &x }
		for _, c := range []struct {
			req  *hedgedv1.SetOverrideRequest
			want string
		}{
			{&hedgedv1.SetOverrideRequest{Override: &hedgedv1.Override{Mode: off}}, "scope: is absent"},
			{&hedgedv1.SetOverrideRequest{Scope: &hedgedv1.SetOverrideRequest_All{}}, "all: false"},
			{service(""), "service: is empty"},
			{service("a\tb"), "unprintable character U+0009"},
			{service(strings.Repeat("x", 300)), "300 bytes long, want at most 256"},
			{with(func(o *hedgedv1.Override) { o.Mode = 17 }), "mode: 17 is unknown"},
			{with(func(o *hedgedv1.Override) { o.Target = number(0) }), "target: 0, want 0.001 to 0.5"},
			{with(func(o *hedgedv1.Override) { o.Target = number(.6) }), "target: 0.6, want 0.001 to 0.5"},
			{with(func(o *hedgedv1.Override) { o.Target = number(nan()) }), "target: NaN, want 0.001 to 0.5"},
			{with(func(o *hedgedv1.Override) { o.Lifetime = durationpb.New(0) }), "lifetime: 0s, want 1s to 720h0m0s"},
			{with(func(o *hedgedv1.Override) { o.Lifetime = durationpb.New(1000 * time.Hour) }), "lifetime: 1000h0m0s, want 1s to 720h0m0s"},
			{with(func(o *hedgedv1.Override) { o.Mode, o.Lifetime = cleared, durationpb.New(time.Hour) }), "lifetime: is set without a mode or a target"},
			{with(func(o *hedgedv1.Override) { o.Author = "a\x1b" }), "author: "},
			{with(func(o *hedgedv1.Override) { o.Reason = strings.Repeat("x", 257) }), "reason: "},
		} {
			if _, err := w.admin.SetOverride(t.Context(), c.req); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want InvalidArgument with %q", err, c.want)
			}
		}
		if got := w.service("orders"); got.Override != nil || got.Policy.Mode != active {
			t.Errorf("something of a refused override applied: %v", got)
		}
	})
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

// A name that is not known is answered with those that are.
func TestUnknownNamesAreSaid(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		_, list := w.admin.ListServices(t.Context(), &hedgedv1.ListServicesRequest{Service: "oders"})
		_, clients := w.admin.ListClients(t.Context(), &hedgedv1.ListClientsRequest{Service: "oders"})
		_, explain := w.admin.Explain(t.Context(), &hedgedv1.ExplainRequest{Service: "oders"})
		watch, err := w.admin.WatchServices(t.Context(), &hedgedv1.WatchServicesRequest{Service: "oders"})
		if err != nil {
			t.Fatal(err)
		}
		_, watched := watch.Recv()
		for _, err := range []error{list, clients, explain, watched} {
			if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), `"default/oders" is unknown; known: default/orders`) {
				t.Errorf("got %v", err)
			}
		}
		if _, err := w.admin.Explain(t.Context(), &hedgedv1.ExplainRequest{Service: "orders", Method: "/none"}); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), `method: "/none"`) {
			t.Errorf("got %v", err)
		}
	})
}

// A service that nobody configured is measured and advised on, and not hedged
// before an operator says so.
func TestServiceOfNobodyIsInShadow(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		defer r.close()
		r.take(frame(1, "cart", get, 2000, 10*time.Millisecond))
		w.tick()
		got := w.service("cart").Policy
		if got.Mode != shadow || got.Reason.Code != hedgedv1.ReasonCode_REASON_CODE_NOT_CONFIGURED || got.Methods[get].GetDelay().AsDuration() == 0 {
			t.Errorf("policy %v, want shadow with a delay", got)
		}
		e, err := w.admin.Explain(t.Context(), &hedgedv1.ExplainRequest{Service: "cart", Method: get})
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Service.Methods) != 1 || !slices.ContainsFunc(e.Changes, func(c *hedgedv1.Change) bool {
			return c.Method == get && c.DelayBefore.AsDuration() == 0 && c.DelayAfter.AsDuration() > 0 && c.Reason != "" && !c.At.AsTime().After(time.Now())
		}) {
			t.Errorf("methods %v, changes %v: want one method and the change of its delay", e.Service.Methods, e.Changes)
		}
		if !slices.ContainsFunc(e.Guards, func(g *hedgedv1.Guard) bool {
			return g.Decided && g.Code == hedgedv1.ReasonCode_REASON_CODE_NOT_CONFIGURED && strings.Contains(g.Text, "nobody configured it")
		}) {
			t.Errorf("no guard tells why: %v", e.Guards)
		}
		w.mustOverride("cart", active)
		if got := w.service("cart").Policy.Mode; got != active {
			t.Errorf("mode %v after on", got)
		}
	})
}

// A watcher gets the state at once, then again at its interval, and an end that
// it retries when the daemon shuts down.
func TestWatchServices(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		for _, bad := range []time.Duration{0, 99 * time.Millisecond, time.Hour} {
			s, err := w.admin.WatchServices(t.Context(), &hedgedv1.WatchServicesRequest{MinInterval: durationpb.New(bad)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "want 100ms to 1m") {
				t.Errorf("interval %v: %v", bad, err)
			}
		}
		s, err := w.admin.WatchServices(t.Context(), &hedgedv1.WatchServicesRequest{MinInterval: durationpb.New(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i := range 3 {
			if r, err := s.Recv(); err != nil || len(r.Services) != 1 || r.Services[0].Name != "default/orders" {
				t.Fatalf("%v, %v", r, err)
			}
			if since := time.Since(began); since.Round(time.Second/2) != time.Duration(i)*time.Second {
				t.Errorf("message %d came after %v", i, since)
			}
		}
		w.end()
		if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("at shutdown: %v, want Unavailable", err)
		}
	})
}

// A rejected policy is not sent again; who rejected it and why is visible until
// an accepted one takes its place.
func TestRejectionIsVisible(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		defer r.close()
		s := w.subscribe("client-1", orders.String(), "")
		defer s.close()
		_, first, nonce := s.one()
		s.answer(nonce, "")

		w.mustOverride("orders", off)
		_, second, nonce := s.one()
		s.answer(nonce, "budget.ratio: is odd")
		time.Sleep(time.Minute)
		if got := s.take(); len(got) != 0 {
			t.Errorf("sent again what was rejected: %v", got)
		}
		want := &hedgedv1.Subscription{Service: "default/orders", AckedVersion: first, NackReason: "budget.ratio: is odd"}
		got := w.client("client-1").Subscriptions
		if len(got) != 1 || got[0].AckedVersion != want.AckedVersion || got[0].NackReason != want.NackReason || got[0].Current {
			t.Errorf("subscriptions %v, want %v", got, want)
		}
		m := w.metrics()
		m.want("hedged_policy_nacks_total", "", 1)
		m.want("hedged_policy_acks_total", "", 1)
		m.want("hedged_policy_responses_total", "", 2)

		w.mustOverride("orders", shadow)
		_, third, nonce := s.one()
		s.answer(nonce, "")
		got = w.client("client-1").Subscriptions
		if len(got) != 1 || got[0].AckedVersion != third || got[0].NackReason != "" || !got[0].Current || third == second {
			t.Errorf("subscriptions %v after version %s was accepted", got, third)
		}
	})
}

// Two lives of one client are two rows; the policy stream is the living one's. A
// client that never reports is listed as well.
func TestClientsAreListedByLife(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		r := w.report(clientSource("client-1"))
		f := frame(1, "orders", get, 1, time.Millisecond)
		f.Generation = &hedgedv1.Generation{Epoch: 1, Number: 7}
		r.take(f)
		r.close()
		time.Sleep(time.Minute)
		next := clientSource("client-1")
		next.Incarnation = 2
		r = w.report(next)
		defer r.close()
		r.take(frame(1, "orders", get, 1, time.Millisecond))
		a, b := w.subscribe("client-1", orders.String(), ""), w.subscribe("silent", orders.String(), "")
		defer a.close()
		defer b.close()
		_, _, nonce := a.one()
		a.answer(nonce, "")
		servers := w.report(serverSource("replica-1"))
		defer servers.close()

		got, err := w.admin.ListClients(t.Context(), &hedgedv1.ListClientsRequest{Service: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Clients) != 3 {
			t.Fatalf("got %v, want two lives of client-1 and the silent one", got.Clients)
		}
		old, living, silent := got.Clients[0], got.Clients[1], got.Clients[2]
		if old.Incarnation != 1 || old.Streaming || old.ReportAge.AsDuration() != time.Minute ||
			len(old.Subscriptions) != 1 || old.Subscriptions[0].Generation.GetNumber() != 7 || old.Subscriptions[0].Current {
			t.Errorf("the life that ended: %v", old)
		}
		if living.Incarnation != 2 || !living.Streaming || len(living.Subscriptions) != 1 || !living.Subscriptions[0].Current {
			t.Errorf("the living one: %v", living)
		}
		if silent.Id != "silent" || silent.Streaming || len(silent.Subscriptions) != 1 {
			t.Errorf("the silent one: %v", silent)
		}
		if got, err := w.admin.ListClients(t.Context(), &hedgedv1.ListClientsRequest{}); err != nil || len(got.Clients) != 3 {
			t.Errorf("all clients: %v, %v", got, err)
		}
	})
}

// A service that is named before its first report obeys from the start.
func TestOverrideBeforeTheFirstReport(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *world) {
		w.mustOverride("cart", off)
		s := w.subscribe("node", "default/cart", "")
		defer s.close()
		if p, _, _ := s.one(); p.Mode != policy.ModeOff || p.Reason.Code != policy.ReasonOverride {
			t.Errorf("policy %+v, want off", p)
		}
	})
}
