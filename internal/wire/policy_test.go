package wire

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
)

var issued = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func validPolicy() *policy.Policy {
	return &policy.Policy{
		Key:        policy.Key{Tenant: "default", Service: "search"},
		Generation: policy.Generation{Epoch: 1_700_000_000_000, Number: 42},
		Mode:       policy.ModeActive,
		Budget:     policy.Budget{Ratio: .05, Burst: 50, Start: 5},
		Throttle:   policy.Throttle{MaxTokens: 100, TokenRatio: .1},
		Default:    policy.Method{Reason: policy.Reason{Code: policy.ReasonNoData, Text: "12 of 100 calls"}},
		Methods: map[string]policy.Method{
			"/a.B/C": {
				Delay: 14_800 * time.Microsecond, Probability: 1, MaxAttempts: 3, NonFatal: []uint32{14},
				Reason: policy.Reason{Code: policy.ReasonTracking, Text: "p95 of 12,400 calls in 10 s is 14.8 ms"},
			},
		},
		Replicas: map[string]policy.Replica{"r1": {State: policy.ReplicaProbation, Share: .02, Reason: "3.1 x the pool's p90"}},
		ValidFor: 10 * time.Minute,
		Reason:   policy.Reason{Code: policy.ReasonTracking, Text: "extra load 4.6% of 5%"},
	}
}

var (
	names = rapid.OneOf(
		rapid.StringMatching(`/[a-z]{1,8}\.[A-Z][a-z]{0,8}/[A-Z][a-z]{0,8}`),
		rapid.StringMatching(`[0-9.]{1,15}:[0-9]{1,5}`),
		rapid.StringMatching(`[\pL\pN\pP ]{1,40}`),
	)
	keys = rapid.Custom(func(t *rapid.T) policy.Key {
		return policy.Key{
			Tenant:  rapid.StringMatching(`[a-zé0-9-]{1,20}`).Draw(t, "tenant"),
			Service: names.Draw(t, "service"),
		}
	})
	generations = rapid.Custom(func(t *rapid.T) policy.Generation {
		return policy.Generation{Epoch: rapid.Uint64().Draw(t, "epoch"), Number: rapid.Uint64().Draw(t, "number")}
	})
	reasons = rapid.Custom(func(t *rapid.T) policy.Reason {
		return policy.Reason{
			Code: policy.ReasonCode(rapid.IntRange(0, int(policy.ReasonCostly)).Draw(t, "code")),
			Text: rapid.String().Draw(t, "text"),
		}
	})
	methods = rapid.Custom(func(t *rapid.T) policy.Method {
		return policy.Method{
			Delay:       time.Duration(rapid.Int64Range(0, int64(policy.MaxDelay)).Draw(t, "delay")),
			Probability: rapid.Float64Range(0, 1).Draw(t, "probability"),
			Observe:     rapid.Float64Range(0, 1).Draw(t, "observe"),
			Holdout:     rapid.Float64Range(0, policy.MaxHoldout).Draw(t, "holdout"),
			MaxAttempts: rapid.IntRange(2, policy.MaxAttempts).Draw(t, "attempts"),
			NonFatal:    orNil(rapid.SliceOf(rapid.Uint32Range(1, 16)).Draw(t, "codes")),
			Reason:      reasons.Draw(t, "reason"),
		}
	})
	policies = rapid.Custom(func(t *rapid.T) *policy.Policy {
		p := &policy.Policy{
			Key:        keys.Draw(t, "key"),
			Generation: generations.Draw(t, "generation"),
			Mode:       policy.Mode(rapid.IntRange(0, int(policy.ModeActive)).Draw(t, "mode")),
			Default:    methods.Draw(t, "default"),
			Methods:    rapid.MapOfN(names, methods, 0, 5).Draw(t, "methods"),
			ValidFor:   time.Duration(rapid.Int64Range(1, int64(policy.MaxValidFor)).Draw(t, "valid for")),
			Reason:     reasons.Draw(t, "reason"),
		}
		p.Replicas = rapid.MapOfN(names, rapid.Custom(func(t *rapid.T) policy.Replica {
			return policy.Replica{
				State:  policy.ReplicaState(rapid.IntRange(0, int(policy.ReplicaRecovering)).Draw(t, "state")),
				Share:  rapid.Float64Range(0, 1).Draw(t, "share"),
				Reason: rapid.String().Draw(t, "reason"),
			}
		}), 0, 5).Draw(t, "replicas")
		p.Budget.Ratio = rapid.Float64Range(0, policy.MaxRatio).Draw(t, "ratio")
		p.Budget.Burst = rapid.Float64Range(0, policy.MaxBurst).Draw(t, "burst")
		p.Budget.Start = rapid.Float64Range(0, p.Budget.Burst).Draw(t, "start")
		if rapid.Bool().Draw(t, "throttled") {
			p.Throttle.MaxTokens = rapid.Float64Range(.001, policy.MaxTokens).Draw(t, "max tokens")
			p.Throttle.TokenRatio = rapid.Float64Range(.001, policy.MaxTokens).Draw(t, "token ratio")
		}
		// Absent and empty are the same on the wire; absent is what comes back.
		if len(p.Methods) == 0 {
			p.Methods = nil
		}
		if len(p.Replicas) == 0 {
			p.Replicas = nil
		}
		return p
	})
)

func orNil(s []uint32) []uint32 {
	if len(s) == 0 {
		return nil
	}
	return s
}

func TestPolicyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policies.Draw(t, "policy")
		got, err := PolicyFromProto(overTheWire(t, PolicyToProto(p, issued)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, p) {
			t.Fatalf("came back as\n%+v\nwant\n%+v", got, p)
		}
	})
}

type fataler interface {
	Helper()
	Fatal(...any)
}

// overTheWire returns m as its receiver decodes it.
func overTheWire[M proto.Message](t fataler, m M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	return got.(M)
}

func TestPolicyIssuedAt(t *testing.T) {
	if got := PolicyToProto(validPolicy(), issued).GetIssuedAt().AsTime(); !got.Equal(issued) {
		t.Errorf("issued at %v, want %v", got, issued)
	}
	if got := PolicyToProto(validPolicy(), time.Time{}).GetIssuedAt(); got != nil {
		t.Errorf("issued at %v, want it absent", got)
	}
}

func TestPolicyWithoutItsParts(t *testing.T) {
	got, err := PolicyFromProto(&hedgedv1.ServicePolicy{
		Name:     "default/search",
		ValidFor: durationpb.New(time.Minute),
		Methods:  map[string]*hedgedv1.MethodPolicy{"/a.B/C": nil},
		Replicas: map[string]*hedgedv1.ReplicaPolicy{"r1": nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &policy.Policy{
		Key:      policy.Key{Tenant: "default", Service: "search"},
		ValidFor: time.Minute,
		Methods:  map[string]policy.Method{"/a.B/C": {}},
		Replicas: map[string]policy.Replica{"r1": {}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// What a broken or hostile daemon, or a damaged store, might hand out: each is
// refused with an error that names field, value and bound.
func TestPolicyRefused(t *testing.T) {
	long := strings.Repeat("x", 10<<10)
	method := func(p *hedgedv1.ServicePolicy) *hedgedv1.MethodPolicy { return p.Methods["/a.B/C"] }
	for _, test := range []struct {
		name  string
		spoil func(p *hedgedv1.ServicePolicy)
		want  string
	}{
		{"no name", func(p *hedgedv1.ServicePolicy) { p.Name = "" }, `name: service: is empty, want 1 to 256 bytes`},
		{"no tenant", func(p *hedgedv1.ServicePolicy) { p.Name = "search" }, `name: "search" has no tenant, want "tenant/service"`},
		{"10 KB service", func(p *hedgedv1.ServicePolicy) { p.Name = "default/" + long }, `is 10240 bytes long, want at most 256`},
		{"10 KB tenant", func(p *hedgedv1.ServicePolicy) { p.Name = long + "/search" }, `name: tenant: "xxxxx`},
		{"control character", func(p *hedgedv1.ServicePolicy) { p.Name = "default/a\x1b[2J" }, `name: service: "a\x1b[2J" has the unprintable character U+001B at byte 1`},
		{"NaN ratio", func(p *hedgedv1.ServicePolicy) { p.Budget.Ratio = math.NaN() }, `budget.ratio: NaN, want 0 to 1`},
		{"negative ratio", func(p *hedgedv1.ServicePolicy) { p.Budget.Ratio = -.01 }, `budget.ratio: -0.01, want 0 to 1`},
		{"infinite burst", func(p *hedgedv1.ServicePolicy) { p.Budget.Burst = math.Inf(1) }, `budget.burst: +Inf, want 0 to 200`},
		{"huge burst", func(p *hedgedv1.ServicePolicy) { p.Budget.Burst = 1e300 }, `budget.burst: 1e+300, want 0 to 200`},
		{"start over burst", func(p *hedgedv1.ServicePolicy) { p.Budget.Start = 51 }, `budget.start: 51, want 0 to 50`},
		{"throttle of 0 tokens", func(p *hedgedv1.ServicePolicy) { p.Throttle.MaxTokens = 0 }, `throttle.max_tokens: 0, want more than 0 and at most 1000`},
		{"throttle of NaN tokens", func(p *hedgedv1.ServicePolicy) { p.Throttle.MaxTokens = math.NaN() }, `throttle.max_tokens: NaN, want 0 to 1000`},
		{"throttle that never refills", func(p *hedgedv1.ServicePolicy) { p.Throttle.TokenRatio = 0 }, `throttle.token_ratio: 0, want more than 0`},
		{"no life", func(p *hedgedv1.ServicePolicy) { p.ValidFor = nil }, `valid_for: 0s, want more than 0 and at most 24h0m0s`},
		{"too long a life", func(p *hedgedv1.ServicePolicy) { p.ValidFor = durationpb.New(25 * time.Hour) }, `valid_for: 90000 s 0 ns, want 0 to 24h0m0s`},
		{"negative delay", func(p *hedgedv1.ServicePolicy) { method(p).Delay = durationpb.New(-1) }, `methods["/a.B/C"].delay: 0 s -1 ns, want 0 to 1h0m0s`},
		{"delay over the range of a duration", func(p *hedgedv1.ServicePolicy) { method(p).Delay.Seconds = math.MaxInt64 }, `methods["/a.B/C"].delay: 9223372036854775807 s 14800000 ns, want 0 to 1h0m0s`},
		{"delay that is no duration", func(p *hedgedv1.ServicePolicy) { method(p).Delay.Nanos = 2e9 }, `methods["/a.B/C"].delay: 0 s 2000000000 ns, want 0 to 1h0m0s`},
		{"default delay", func(p *hedgedv1.ServicePolicy) { p.DefaultMethod.Delay = durationpb.New(2 * time.Hour) }, `default_method.delay: 7200 s 0 ns, want 0 to 1h0m0s`},
		{"NaN probability", func(p *hedgedv1.ServicePolicy) { method(p).Probability = math.NaN() }, `methods["/a.B/C"].probability: NaN, want 0 to 1`},
		{"one attempt", func(p *hedgedv1.ServicePolicy) { method(p).MaxAttempts = 1 }, `methods["/a.B/C"].max_attempts: 1, want 2 to 5`},
		{"huge attempts", func(p *hedgedv1.ServicePolicy) { method(p).MaxAttempts = math.MaxUint32 }, `.max_attempts: 4294967295, want 2 to 5`},
		{"status code OK", func(p *hedgedv1.ServicePolicy) { method(p).NonFatalStatusCodes = []uint32{0} }, `.non_fatal: status code 0, want 1 to 16`},
		{"10 KB method", func(p *hedgedv1.ServicePolicy) { p.Methods[long] = method(p) }, `methods key: "xxxxx`},
		{"1,001 methods", func(p *hedgedv1.ServicePolicy) { fill(p.Methods, 1001) }, `methods: 1001, want at most 1000`},
		{"replica with a control character", func(p *hedgedv1.ServicePolicy) { p.Replicas["r\x00"] = p.Replicas["r1"] }, `replica: "r\x00" has the unprintable character U+0000 at byte 1`},
		{"share over 1", func(p *hedgedv1.ServicePolicy) { p.Replicas["r1"].Share = 1.5 }, `replicas["r1"].share: 1.5, want 0 to 1`},
		{"10,001 replicas", func(p *hedgedv1.ServicePolicy) { fill(p.Replicas, 10001) }, `replicas: 10001, want at most 10000`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := PolicyToProto(validPolicy(), issued)
			test.spoil(m)
			_, err := PolicyFromProto(m)
			refused(t, err, test.want)
		})
	}
	if _, err := PolicyFromProto(nil); err == nil {
		t.Error("no error for no policy")
	}
}

// fill adds entries under valid names until m has n.
func fill[V any](m map[string]*V, n int) {
	for i := 0; len(m) < n; i++ {
		m[fmt.Sprintf("n%d", i)] = new(V)
	}
}

// refused wants an error that holds want and is short whatever the input was.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, want an error with %q", want)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error is %q, want it to hold %q", err, want)
	}
	if len(err.Error()) > 1024 {
		t.Errorf("error is %d bytes long, want at most 1024", len(err.Error()))
	}
}

func TestPolicyVersionLeavesOutTheGeneration(t *testing.T) {
	p, q := validPolicy(), validPolicy()
	q.Generation.Number++
	if a, b := PolicyVersion(p), PolicyVersion(q); a != b {
		t.Errorf("version went from %s to %s with the generation", a, b)
	}
}

func TestPolicyVersionFollowsTheContent(t *testing.T) {
	seen := map[string]string{PolicyVersion(validPolicy()): "nothing"}
	for name, change := range map[string]func(p *policy.Policy){
		"key":      func(p *policy.Policy) { p.Key.Service = "other" },
		"mode":     func(p *policy.Policy) { p.Mode = policy.ModeOff },
		"budget":   func(p *policy.Policy) { p.Budget.Start = 6 },
		"throttle": func(p *policy.Policy) { p.Throttle.TokenRatio = .2 },
		"default":  func(p *policy.Policy) { p.Default.MaxAttempts = 2 },
		"method":   func(p *policy.Policy) { p.Methods["/a.B/D"] = policy.Method{} },
		"replica":  func(p *policy.Policy) { p.Replicas["r1"] = policy.Replica{State: policy.ReplicaRecovering} },
		"life":     func(p *policy.Policy) { p.ValidFor++ },
		"reason":   func(p *policy.Policy) { p.Reason.Text = "" },
	} {
		p := validPolicy()
		change(p)
		v := PolicyVersion(p)
		if other, ok := seen[v]; ok {
			t.Errorf("a change of %s and of %s have the same version %s", name, other, v)
		}
		seen[v] = name
	}
}

// The version was taken from another process: after a restart the same content
// must have the version that clients hold, or every one of them is pushed to.
func TestPolicyVersionOutlivesTheProcess(t *testing.T) {
	const want = "8e6f080e878e49154f74be9485992d4c"
	p := validPolicy()
	for i := range 20 {
		p.Methods[fmt.Sprintf("/a.B/M%d", i)] = policy.Method{}
	}
	for range 20 { // the order of maps differs each time
		if got := PolicyVersion(p); got != want {
			t.Fatalf("version %s, want %s", got, want)
		}
	}
}

func TestPolicyReasonNeedNotBeUTF8(t *testing.T) {
	p := validPolicy()
	p.Reason.Text = "caf\xe9"
	got, err := PolicyFromProto(overTheWire(t, PolicyToProto(p, issued)))
	if err != nil {
		t.Fatal(err)
	}
	if got.Reason.Text != "caf\uFFFD" {
		t.Errorf("reason %q", got.Reason.Text)
	}
}

func FuzzPolicy(f *testing.F) {
	add := func(m *hedgedv1.ServicePolicy) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	add(PolicyToProto(validPolicy(), issued))
	add(&hedgedv1.ServicePolicy{})
	m := PolicyToProto(validPolicy(), issued)
	m.Mode, m.Budget.Ratio, m.ValidFor.Seconds = 99, math.NaN(), math.MinInt64
	add(m)

	f.Fuzz(func(t *testing.T, b []byte) {
		var m hedgedv1.ServicePolicy
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		p, err := PolicyFromProto(&m)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("accepted what Validate refuses: %v", err)
		}
		again, err := PolicyFromProto(overTheWire(t, PolicyToProto(p, time.Time{})))
		if err != nil {
			t.Fatalf("refused what it made itself: %v", err)
		}
		if PolicyVersion(p) != PolicyVersion(again) || p.Generation != again.Generation {
			t.Fatalf("came back as\n%+v\nwant\n%+v", again, p)
		}
	})
}
