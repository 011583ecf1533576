package client

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// following runs a test with a client that is subscribed to orders, in a bubble.
func following(t *testing.T, test func(t *testing.T, d *fakeDaemon, c *Client, s *service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		c := newClient(t, d.options())
		s := c.service(orders)
		synctest.Wait()
		test(t, d, c, s)
	})
}

func number(s *service) uint64 {
	if p := s.policy(); p != nil {
		return p.Generation.Number
	}
	return 0
}

func TestPolicyComesIntoForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startFake(t)
		o := d.options()
		var seen []uint64
		o.OnPolicy = func(p policy.Policy) { seen = append(seen, p.Generation.Number) }
		c := newClient(t, o)
		s := c.service(orders)
		synctest.Wait()
		if first := d.requests()[0]; first.TypeUrl != wire.ServicePolicyType ||
			!slices.Equal(first.ResourceNamesSubscribe, []string{"default/orders"}) ||
			first.Node.GetId() != "client-1" || first.Node.GetLocality().GetZone() != "zone-a" {
			t.Errorf("first request is %v", first)
		}
		if s.policy() != nil {
			t.Error("a policy is in force before any came")
		}

		nonce := d.pushPolicy(activePolicy(1))
		synctest.Wait()
		if got := s.policy(); got == nil || got.Default.Delay != 15*time.Millisecond {
			t.Fatalf("policy in force is %+v, want the one pushed", got)
		}
		if answers := d.answered(nonce); len(answers) != 1 || answers[0].ErrorDetail != nil {
			t.Errorf("answers are %v, want one ACK", answers)
		}
		if tokens := s.budget.Tokens(); tokens != 5 {
			t.Errorf("the budget starts with %g tokens, want 5", tokens)
		}

		off := activePolicy(2)
		off.Mode = policy.ModeOff
		d.pushPolicy(off)
		synctest.Wait()
		if got := s.policy(); got == nil || got.Mode != policy.ModeOff {
			t.Errorf("policy in force is %+v, want off", got)
		}
		if s.budget.Take(new(hedge.Waiter), false) {
			t.Error("the budget gives a token while the policy is off")
		}
		if !slices.Equal(seen, []uint64{1, 2}) {
			t.Errorf("OnPolicy saw %v, want [1 2]", seen)
		}
	})
}

// A rejected policy was sent again at once, and rejected again, for ever: the
// client's part is to say no once, and why, and to take the next good one.
func TestRejectedPolicyIsRefusedOnceWithItsReason(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		d.pushPolicy(activePolicy(6))
		bad := wire.PolicyToProto(activePolicy(7), time.Now())
		bad.Budget.Ratio = 1.5
		nonce := d.push(&discoveryv3.DeltaDiscoveryResponse{
			Resources: []*discoveryv3.Resource{resource(t, bad, "v7")},
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		answers := d.answered(nonce)
		if len(answers) != 1 || answers[0].ErrorDetail == nil {
			t.Fatalf("answers are %v, want one NACK", answers)
		}
		for _, want := range []string{"default/orders", "budget.ratio", "1.5", "0 to 1"} {
			if got := answers[0].ErrorDetail.Message; !strings.Contains(got, want) {
				t.Errorf("NACK says %q, want it to name %q", got, want)
			}
		}
		if number(s) != 6 {
			t.Errorf("policy %d is in force, want the last good one, 6", number(s))
		}

		d.pushPolicy(activePolicy(8))
		synctest.Wait()
		if number(s) != 8 {
			t.Errorf("policy %d is in force, want 8", number(s))
		}
	})
}

// A rejection that is judged by version and nonce is read as acceptance: a
// response with a good and a bad resource is refused by its error detail, and
// the bad one's version is never claimed.
func TestRefusalNamesTheBadResourceAndTakesTheGoodOne(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		billing := policy.Key{Tenant: policy.DefaultTenant, Service: "billing"}
		b := c.service(billing)
		synctest.Wait()
		good := activePolicy(1)
		other := activePolicy(1)
		other.Key = billing
		bad := wire.PolicyToProto(other, time.Now())
		bad.ValidFor = nil
		nonce := d.push(&discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{
			resource(t, wire.PolicyToProto(good, time.Now()), "good"), resource(t, bad, "bad"),
		}})
		synctest.Wait()
		answers := d.answered(nonce)
		if len(answers) != 1 || answers[0].ErrorDetail == nil || !strings.Contains(answers[0].ErrorDetail.Message, "valid_for") ||
			strings.Contains(answers[0].ErrorDetail.Message, "orders") {
			t.Fatalf("answers are %v, want one NACK for billing's valid_for", answers)
		}
		if number(s) != 1 || b.policy() != nil {
			t.Errorf("in force: orders %d, billing %v; want 1 and none", number(s), b.policy())
		}

		before := len(d.requests())
		d.stop()
		d.start()
		time.Sleep(time.Second)
		synctest.Wait()
		again := d.requests()[before:]
		if len(again) != 1 {
			t.Fatalf("after the reconnect the client asked %v, want one request", again)
		}
		if held := again[0].InitialResourceVersions; len(held) != 1 || held["default/orders"] != "good" {
			t.Errorf("it holds %v, want only the good version", held)
		}
		slices.Sort(again[0].ResourceNamesSubscribe)
		if want := []string{"default/billing", "default/orders"}; !slices.Equal(again[0].ResourceNamesSubscribe, want) {
			t.Errorf("it asks for %v, want %v", again[0].ResourceNamesSubscribe, want)
		}
	})
}

func TestResourceThatIsNotWhatItSaysIsRefused(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		misnamed := resource(t, wire.PolicyToProto(activePolicy(1), time.Now()), "v1")
		misnamed.Name = "default/billing"
		empty := &discoveryv3.Resource{Name: "default/orders", Version: "v1"}
		for _, r := range []*discoveryv3.Resource{misnamed, empty} {
			nonce := d.push(&discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{r}})
			synctest.Wait()
			if answers := d.answered(nonce); len(answers) != 1 || !strings.Contains(answers[0].ErrorDetail.GetMessage(), r.Name) {
				t.Errorf("%v: answers are %v, want one NACK", r, answers)
			}
			if s.policy() != nil {
				t.Errorf("%v came into force", r)
			}
		}
	})
}

func TestOlderGenerationIsAcknowledgedAndIgnored(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		d.pushPolicy(activePolicy(5))
		synctest.Wait()
		older := activePolicy(4)
		older.Mode = policy.ModeOff
		same := activePolicy(5)
		same.Budget.Burst = 20
		for _, p := range []*policy.Policy{older, same} {
			nonce := d.pushPolicy(p)
			synctest.Wait()
			if answers := d.answered(nonce); len(answers) != 1 || answers[0].ErrorDetail != nil {
				t.Errorf("%v: answers are %v, want one ACK", p.Generation, answers)
			}
			if got := s.policy(); got.Mode != policy.ModeActive || got.Budget.Burst != 10 {
				t.Errorf("%v came into force over 1.5: %+v", p.Generation, got)
			}
		}

		newStore := activePolicy(1)
		newStore.Generation.Epoch = 2
		d.pushPolicy(newStore)
		synctest.Wait()
		if got := s.policy().Generation; got != newStore.Generation {
			t.Errorf("%v is in force, want the newer epoch's %v", got, newStore.Generation)
		}
		if got := c.Stats()[0].Applied; got != 2 {
			t.Errorf("%d policies were applied, want 2", got)
		}
	})
}

func TestRemovedResourceIsNoOpinion(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		d.pushPolicy(activePolicy(1))
		nonce := d.push(&discoveryv3.DeltaDiscoveryResponse{RemovedResources: []string{"default/orders"}})
		synctest.Wait()
		if answers := d.answered(nonce); len(answers) != 1 || answers[0].ErrorDetail != nil {
			t.Errorf("answers are %v, want one ACK", answers)
		}
		if number(s) != 1 {
			t.Errorf("policy %d is in force, want 1 to live on", number(s))
		}
	})
}

func TestSubscriptionGrowsOnTheStream(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		c.service(policy.Key{Tenant: "shop", Service: "billing"})
		c.service(orders) // again
		synctest.Wait()
		asked := d.requests()
		if len(asked) != 2 || !slices.Equal(asked[1].ResourceNamesSubscribe, []string{"shop/billing"}) {
			t.Fatalf("asked %v, want a second request for shop/billing alone", asked)
		}
		if asked[1].ResponseNonce != "" || asked[1].Node != nil {
			t.Errorf("the addition is %v, want neither nonce nor node", asked[1])
		}
	})
}

func TestUpdatesFlowWithinASecondOfARestart(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		d.pushPolicy(activePolicy(1))
		synctest.Wait()
		for i := range uint64(5) {
			d.stop()
			time.Sleep(300 * time.Millisecond)
			d.start()
			time.Sleep(time.Second)
			synctest.Wait()
			d.pushPolicy(activePolicy(2 + i))
			synctest.Wait()
			if number(s) != 2+i {
				t.Fatalf("restart %d: policy %d is in force, want %d", i, number(s), 2+i)
			}
		}
	})
}

// A policy lives while either stream brings anything, ends on the client's own
// clock when both are silent, and lives again with the next message.
func TestPolicyExpiresWithoutAMessageOnEitherStream(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		d.pushPolicy(activePolicy(1))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if number(s) != 1 {
			t.Fatal("the policy expired although reports were answered")
		}

		d.answers(silent)
		time.Sleep(58 * time.Second)
		synctest.Wait()
		if number(s) != 1 {
			t.Error("the policy expired before its valid_for")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s.policy() != nil {
			t.Error("the policy outlived its valid_for")
		}
		if s.budget.Take(new(hedge.Waiter), false) {
			t.Error("the budget gives tokens without a policy")
		}

		d.answers(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if number(s) != 1 {
			t.Error("a message did not bring the policy back into force")
		}
		if !s.budget.Take(new(hedge.Waiter), false) {
			t.Error("the budget gives no token although the policy is back")
		}
	})
}

// When the daemon dies the client goes on by the last policy and keeps to its
// budget: hedges <= ratio x calls + burst.
func TestBudgetHoldsWhileTheDaemonIsDead(t *testing.T) {
	following(t, func(t *testing.T, d *fakeDaemon, c *Client, s *service) {
		p := activePolicy(1)
		d.pushPolicy(p)
		synctest.Wait()
		d.stop()
		const calls = 10_000
		hedges := 0
		for range calls {
			if s.policy() == nil {
				t.Fatal("no policy is in force")
			}
			s.budget.Earn()
			w := new(hedge.Waiter)
			if s.budget.Take(w, false) {
				hedges++
			} else {
				s.budget.Leave(w)
			}
			time.Sleep(time.Millisecond)
		}
		if most := int(p.Budget.Ratio*calls + p.Budget.Burst); hedges > most || hedges < most/2 {
			t.Errorf("%d hedges in %d calls, want at most %d and more than half of that", hedges, calls, most)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.policy() != nil {
			t.Error("the policy outlived its valid_for")
		}
	})
}

// A client that holds more than one message can tell comes back all the same: its
// requests stay below the server's limit, and say everything once.
func TestManyNamesAreAskedForInSeveralRequests(t *testing.T) {
	const services = 7001
	s := newSubscriber(report.Source{ID: "client-1"})
	want := map[string]string{}
	for i := range services {
		name := fmt.Sprintf("%0*d/%0*d", policy.MaxNameLen, i, policy.MaxNameLen, i)
		s.names = append(s.names, name)
		if want[name] = ""; i%3 > 0 {
			want[name] = strings.Repeat("v", 64)
			s.versions[name] = want[name]
		}
	}
	got := map[string]string{}
	for _, r := range s.requests(s.names) {
		if n := proto.Size(r); n > 3<<20 {
			t.Errorf("a request of %d bytes", n)
		}
		for _, name := range r.ResourceNamesSubscribe {
			if _, twice := got[name]; twice {
				t.Fatalf("%q is asked for twice", name)
			}
			got[name] = r.InitialResourceVersions[name]
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d names are asked for, want %d with their versions", len(got), len(want))
	}
}
