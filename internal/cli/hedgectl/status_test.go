package hedgectl

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// fields are the lines of a table, without the spaces between its columns.
func fields(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func exampleService(name string, replicas ...*hedgedv1.ReplicaStatus) *hedgedv1.ServiceStatus {
	load := &hedgedv1.Load{
		Window: durationpb.New(10 * time.Second), Calls: 1000, Safe: 1000, Eligible: 50, Hedges: 45, Wins: 40,
		ExtraLoad: new(.045), EligibleRate: new(.05), Suppressed: map[string]uint64{"replica": 2, "budget": 3},
	}
	delay := &hedgedv1.MethodPolicy{Delay: durationpb.New(15 * time.Millisecond)}
	return &hedgedv1.ServiceStatus{
		Name: name, Target: .05, Load: load, Clients: 2, Replicas: replicas,
		Policy: &hedgedv1.ServicePolicy{
			Mode: hedgedv1.Mode_MODE_ACTIVE, Generation: &hedgedv1.Generation{Epoch: 7, Number: 3},
			Budget: &hedgedv1.Budget{Ratio: .046, Burst: 50, Start: 15},
			Reason: &hedgedv1.Reason{Code: hedgedv1.ReasonCode_REASON_CODE_TRACKING, Text: "as measured"},
		},
		Methods: []*hedgedv1.MethodStatus{{
			Method: "/a.B/C", Policy: delay, Load: load, P50: durationpb.New(450 * time.Microsecond), P999: durationpb.New(900 * time.Millisecond),
			Counterfactual: &hedgedv1.Counterfactual{
				P999:       &hedgedv1.QuantileInterval{Value: durationpb.New(1012 * time.Millisecond)},
				HedgedP999: durationpb.New(28700 * time.Microsecond),
				Efficacy:   new(.98), EfficacyOff: new(.015), Text: "without hedging p99.9 would be 1012 ms",
			},
		}},
	}
}

func exampleReplica(name string, state hedgedv1.ReplicaState) *hedgedv1.ReplicaStatus {
	return &hedgedv1.ReplicaStatus{Replica: name, Policy: &hedgedv1.ReplicaPolicy{State: state, Share: .02, Reason: "slow"}}
}

func TestStatusTable(t *testing.T) {
	users := exampleService("default/users",
		exampleReplica("a", hedgedv1.ReplicaState_REPLICA_STATE_SERVING),
		exampleReplica("b", hedgedv1.ReplicaState_REPLICA_STATE_PROBATION))
	users.Override = &hedgedv1.Override{Mode: hedgedv1.Mode_MODE_ACTIVE, Target: new(.05), Author: "ann", Reason: "trial"}
	v := overview{
		daemon: &hedgedv1.GetStatusResponse{Version: "1", Epoch: 7, StorageError: "no space",
			AllOverride: &hedgedv1.Override{Mode: hedgedv1.Mode_MODE_OFF}},
		services: &hedgedv1.ListServicesResponse{Services: []*hedgedv1.ServiceStatus{users, exampleService("default/orders")}},
		clients: &hedgedv1.ListClientsResponse{Clients: []*hedgedv1.ClientStatus{{
			Id: "checkout", Version: "0.1.0", Streaming: true,
			Subscriptions: []*hedgedv1.Subscription{
				{Service: "default/orders", Generation: &hedgedv1.Generation{Epoch: 6, Number: 9}},
				{Service: "default/users", Generation: &hedgedv1.Generation{Epoch: 7, Number: 3}, Current: true},
			},
		}}},
	}
	var b bytes.Buffer
	v.table(&b)
	for _, want := range []string{
		"STORAGE FAILS, going on from memory: no space",
		"ALL SERVICES: off, said an operator",
		"default/users active 4.5% 5.0% 5.0% 1000 2 2, 1 out active at 5.0%, said ann: trial",
		"default/orders active 4.5% 5.0% 5.0% 1000 2 0 as measured",
		"default/users /a.B/C 15.0 ms 4.5% 5.0% 1000 40 0.450 ms - 1012 ms 28.7 ms 98.0% +- 1.5",
		"default/users b probation 2.0% 0 - - slow",
		"default/orders checkout 6.9 behind - 0.1.0",
		"default/users checkout 3 current - 0.1.0",
	} {
		if !slices.Contains(fields(b.String()), want) {
			t.Errorf("want the line %q in\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), " a  serving") {
		t.Errorf("of several services only replicas out of service are worth a line:\n%s", &b)
	}

	b.Reset()
	writeServices(&b, []*hedgedv1.ServiceStatus{{Name: "default/new", Load: &hedgedv1.Load{}}})
	if strings.Contains(b.String(), "METHOD") || strings.Contains(b.String(), "REPLICA ") {
		t.Errorf("a header without a row:\n%s", &b)
	}
}

func TestExplanation(t *testing.T) {
	r := &hedgedv1.ExplainResponse{
		Service: exampleService("default/users"),
		Guards:  []*hedgedv1.Guard{{Code: hedgedv1.ReasonCode_REASON_CODE_TRACKING, Method: "/a.B/C", Decided: true, Text: "p95 of 1,000 calls"}},
		Changes: []*hedgedv1.Change{{
			Method: "/a.B/C", Generation: &hedgedv1.Generation{Epoch: 7, Number: 3}, Reason: "moved",
			DelayBefore: durationpb.New(0), DelayAfter: durationpb.New(15 * time.Millisecond),
		}},
	}
	r.Service.Load.ServerAttempts, r.Service.Load.ServerHedges = 1040, 44
	var b bytes.Buffer
	writeExplanation(&b, r, "")
	for _, want := range []string{
		"default/users is active: as measured",
		"Extra load 4.5% of 5.0% in the last 10s: of 1000 calls 1000 may be hedged and 50 outlived the delay; 45 hedges, 40 won.",
		"Servers counted 44 hedges among 1040 attempts, and 0 attempts cancelled.",
		"Outlived it and not hedged, by reason: budget 3, replica 2.",
		"tracking yes /a.B/C p95 of 1,000 calls",
		"/a.B/C: without hedging p99.9 would be 1012 ms.",
	} {
		if !slices.Contains(fields(b.String()), want) {
			t.Errorf("want the line %q in\n%s", want, &b)
		}
	}
	if !strings.Contains(b.String(), "none to 15.0 ms") {
		t.Errorf("want the change in\n%s", &b)
	}

	b.Reset()
	r.Service.Load = &hedgedv1.Load{Window: durationpb.New(10 * time.Second)}
	writeLoad(&b, r.Service)
	if want := "No calls in the last 10s; the target is 5.0%.\n"; b.String() != want {
		t.Errorf("%q, want %q", &b, want)
	}
}

// A list of names stays readable for hundreds of them.
func TestSome(t *testing.T) {
	for n, want := range map[int]string{
		0:  "none",
		2:  "s, s",
		10: "s, s, s, s, s, s, s, s, s, s",
		12: "s, s, s, s, s, s, s, s, s, s and 2 more",
	} {
		if got := some(slices.Repeat([]string{"s"}, n)); got != want {
			t.Errorf("%d names are %q, want %q", n, got, want)
		}
	}
}
