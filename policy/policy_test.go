package policy

import (
	"math"
	"strings"
	"testing"
	"time"
)

func valid() *Policy {
	return &Policy{
		Key:      Key{Tenant: "default", Service: "cart"},
		Mode:     ModeActive,
		Budget:   Budget{Ratio: .05, Burst: 50, Start: 20},
		Throttle: Throttle{MaxTokens: 10, TokenRatio: .1},
		Methods: map[string]Method{
			"/shop.Cart/Get": {Delay: 15 * time.Millisecond, Probability: 1, MaxAttempts: 3, NonFatal: []uint32{14}},
		},
		Replicas: map[string]Replica{"10.0.0.1:80": {State: ReplicaProbation, Share: .02}},
		ValidFor: DefaultValidFor,
	}
}

func TestValidateNamesFieldAndBound(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatalf("valid: %v", err)
	}
	method := func(change func(*Method)) func(*Policy) {
		return func(p *Policy) {
			m := p.Methods["/shop.Cart/Get"]
			change(&m)
			p.Methods["/shop.Cart/Get"] = m
		}
	}
	for _, c := range []struct {
		change func(*Policy)
		want   string // empty: valid
	}{
		{func(p *Policy) { p.Key.Tenant = "" }, "tenant: is empty"},
		{func(p *Policy) { p.Key.Tenant = "a/b" }, "contains a slash"},
		{func(p *Policy) { p.Key.Service = "" }, "service: is empty"},
		{func(p *Policy) { p.Mode = 3 }, "mode: 3 is unknown"},
		{func(p *Policy) { p.Budget.Ratio = -.1 }, "budget.ratio: -0.1, want 0 to 1"},
		{func(p *Policy) { p.Budget.Ratio = math.NaN() }, "budget.ratio: NaN"},
		{func(p *Policy) { p.Budget.Ratio = math.Inf(1) }, "budget.ratio: +Inf"},
		{func(p *Policy) { p.Budget.Burst = 201 }, "budget.burst: 201, want 0 to 200"},
		{func(p *Policy) { p.Budget.Start = 51 }, "budget.start: 51, want 0 to 50"},
		{func(p *Policy) { p.Budget = Budget{} }, ""},
		{func(p *Policy) { p.Throttle.MaxTokens = 1001 }, "throttle.max_tokens: 1001"},
		{func(p *Policy) { p.Throttle.TokenRatio = math.NaN() }, "throttle.token_ratio: NaN"},
		{func(p *Policy) { p.Throttle.TokenRatio = 0 }, "throttle.token_ratio: 0, want more than 0"},
		{func(p *Policy) { p.Throttle = Throttle{} }, ""},
		{func(p *Policy) { p.ValidFor = 0 }, "valid_for: 0s"},
		{func(p *Policy) { p.ValidFor = MaxValidFor + 1 }, "valid_for: 24h"},
		{func(p *Policy) { p.Default.Delay = -1 }, "default.delay: -1ns, want 0 to 1h0m0s"},
		{func(p *Policy) { p.Default = Method{Delay: 1, MaxAttempts: 1} }, "default.max_attempts: 1, want 2 to 5"},
		{method(func(m *Method) { m.Delay = MaxDelay + 1 }), `methods["/shop.Cart/Get"].delay`},
		{method(func(m *Method) { m.Probability = 1.1 }), "probability: 1.1, want 0 to 1"},
		{method(func(m *Method) { m.Observe = -.1 }), "observe: -0.1, want 0 to 1"},
		{method(func(m *Method) { m.Holdout = .03 }), "holdout: 0.03, want 0 to 0.02"},
		{method(func(m *Method) { m.MaxAttempts = 6 }), "max_attempts: 6, want 2 to 5"},
		{method(func(m *Method) { m.Delay, m.MaxAttempts = 0, 0 }), ""},
		{method(func(m *Method) { m.NonFatal = []uint32{0} }), "non_fatal: status code 0, want 1 to 16"},
		{method(func(m *Method) { m.NonFatal = []uint32{17} }), "non_fatal: status code 17"},
		{func(p *Policy) { p.Methods = map[string]Method{"a\nb": {}} }, "method: "},
		{func(p *Policy) { p.Replicas = map[string]Replica{"": {}} }, "replica: is empty"},
		{func(p *Policy) { p.Replicas = map[string]Replica{"r": {State: 3}} }, `replicas["r"].state: 3 is unknown`},
		{func(p *Policy) { p.Replicas = map[string]Replica{"r": {Share: 1.5}} }, `replicas["r"].share: 1.5, want 0 to 1`},
	} {
		p := valid()
		c.change(p)
		switch err := p.Validate(); {
		case c.want == "" && err != nil:
			t.Errorf("got %v, want it valid", err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

func TestValidateBoundsTheNumberOfEntries(t *testing.T) {
	p := valid()
	for i := range MaxMethods + 1 {
		p.Methods["/m/"+strings.Repeat("x", i%200)+string(rune('a'+i/200))] = Method{}
	}
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "want at most 1000") {
		t.Errorf("%d methods: %v", len(p.Methods), err)
	}
}

func TestMethodFallsBackToDefault(t *testing.T) {
	p := valid()
	p.Default.Delay = time.Second
	if m, ok := p.Method("/shop.Cart/Get"); !ok || m.Delay != 15*time.Millisecond {
		t.Errorf("named: %v, %v", m, ok)
	}
	if m, ok := p.Method("/shop.Cart/Put"); ok || m.Delay != time.Second {
		t.Errorf("not named: %v, %v", m, ok)
	}
}

// A coin makes more calls eligible; restrained hedging and none are not steered.
func TestExpected(t *testing.T) {
	tracking := Reason{Code: ReasonTracking}
	p := Policy{Budget: Budget{Ratio: .01}, Methods: map[string]Method{
		"/s/A": {Probability: 1, Reason: tracking},
		"/s/B": {Probability: 0, Reason: tracking},
		"/s/C": {Probability: .001, Reason: Reason{Code: ReasonShared}},
	}}
	if got := p.Expected(); got != .01 {
		t.Errorf("got %v, want .01", got)
	}
	p.Methods["/s/D"] = Method{Probability: .5, Reason: tracking}
	if got := p.Expected(); got != .02 {
		t.Errorf("with a coin: got %v, want .02", got)
	}
}

func TestGenerationOrder(t *testing.T) {
	ascending := []Generation{{}, {0, 1}, {1, 0}, {1, 1}, {1, math.MaxUint64}, {2, 0}, {math.MaxUint64, 0}}
	for i, a := range ascending {
		for j, b := range ascending {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := a.Compare(b); got != want {
				t.Errorf("%v against %v: %d, want %d", a, b, got, want)
			}
		}
	}
	if !ascending[0].IsZero() || ascending[1].IsZero() || ascending[2].IsZero() {
		t.Error("only the zero generation is zero")
	}
	if got := (Generation{12, 3}).String(); got != "12.3" {
		t.Errorf("got %q", got)
	}
}

func TestParseKey(t *testing.T) {
	for name, want := range map[string]Key{
		"cart":       {DefaultTenant, "cart"},
		"shop/cart":  {"shop", "cart"},
		"shop/a/b":   {"shop", "a/b"},
		"shop/a:443": {"shop", "a:443"},
	} {
		k, err := ParseKey(name)
		if err != nil || k != want {
			t.Errorf("%q: got %v, %v; want %v", name, k, err, want)
		}
	}
	if got := (Key{DefaultTenant, "cart"}).String(); got != "default/cart" {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{"", "/", "/cart", "shop/", "a\x00b", "a\tb", "\xff", strings.Repeat("x", MaxNameLen+1)} {
		if k, err := ParseKey(name); err == nil {
			t.Errorf("%q: got %v, want an error", name, k)
		}
	}
}

func TestValidateName(t *testing.T) {
	for value, want := range map[string]string{
		"ok":                                  "",
		"with space":                          "",
		"größe":                               "",
		strings.Repeat("x", MaxNameLen):       "",
		"":                                    "method: is empty, want 1 to 256 bytes",
		strings.Repeat("x", 10<<10):           "is 10240 bytes long, want at most 256",
		"a\x1bb":                              "unprintable character U+001B at byte 1",
		"a\u202eb":                            "unprintable character U+202E at byte 1",
		"\xc3\x28":                            "is not valid UTF-8",
		strings.Repeat("x", MaxNameLen) + "é": "want at most 256",
	} {
		err := ValidateName("method", value)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", value, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.20q: got %v, want %q", value, err, want)
		case err != nil && len(err.Error()) > 200:
			t.Errorf("an error of %d bytes repeats a hostile name", len(err.Error()))
		}
	}
}

func TestNamesOfClosedSets(t *testing.T) {
	for got, want := range map[string]string{
		ModeOff.String(): "off", ModeShadow.String(): "shadow", ModeActive.String(): "active", Mode(9).String(): "mode(9)",
		ReplicaServing.String(): "serving", ReplicaProbation.String(): "probation", ReplicaRecovering.String(): "recovering", ReplicaState(9).String(): "replica_state(9)",
		ReasonOverride.String(): "override", ReasonTracking.String(): "tracking", ReasonCode(99).String(): "reason(99)",
		SuppressedUnsafe.String(): "unsafe", SuppressedSilence.String(): "silence", NumSuppressions.String(): "suppression(8)",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for c := range numReasonCodes {
		if c.String() == "" {
			t.Errorf("reason %d has no name", c)
		}
	}
	for s := range NumSuppressions {
		if s.String() == "" {
			t.Errorf("suppression %d has no name", s)
		}
	}
}
