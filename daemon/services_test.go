package daemon

import (
	"testing"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
)

// The rule that names a service outweighs patterns; of those the one that says
// the most does, and of equals the first.
func TestServicesFor(t *testing.T) {
	s := Services{Default: control.DefaultConfig()}
	for i, pattern := range []string{"*", "shop-*", "*-cart", "shop-*-eu", "shop-cart", "*/billing", "acme/*", "s*p-x*z"} {
		cfg := control.DefaultConfig()
		cfg.Configured = true
		cfg.MaxAttempts = 2
		cfg.Target = float64(i+1) / 100
		s.Rules = append(s.Rules, ServiceRule{Pattern: pattern, Config: cfg})
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"default/anything":   .01,
		"default/shop-order": .02,
		"default/shop-cart":  .05, // by its name
		"default/x-cart":     .03,
		"default/shop-a-eu":  .04,
		"default/shop--eu":   .04,
		"default/shop-eu":    .02, // the parts of a pattern do not overlap
		"default/billing":    .06,
		"other/billing":      .06,
		"acme/checkout":      .07,
		"default/shop-xyz":   .02,
		"default/sup-x-z":    .08,
		"other/checkout":     .05, // Default
	} {
		key, err := policy.ParseKey(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.For(key); got.Target != want {
			t.Errorf("%s: rule of target %v, want that of %v", name, got.Target, want)
		}
	}
	if s.For(policy.Key{Tenant: "other", Service: "checkout"}).Configured {
		t.Error("a service that no rule matches is configured")
	}
	if got := s.Named(); len(got) != 1 || got[0].Service != "shop-cart" {
		t.Errorf("named services %v, want shop-cart only", got)
	}
}
