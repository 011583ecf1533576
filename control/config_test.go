package control

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
)

func TestConfigValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatalf("default: %v", err)
	}
	if err := (Config{}).Validate(); err == nil {
		t.Error("the zero Config validates")
	}
	for want, change := range map[string]func(*Config){
		"mode: 9":                 func(c *Config) { c.Mode = 9 },
		"target: 0,":              func(c *Config) { c.Target = 0 },
		"target: NaN":             func(c *Config) { c.Target = math.NaN() },
		"target: 0.6":             func(c *Config) { c.Target = .6 },
		"objective: 0,":           func(c *Config) { c.Objective = 0 },
		"objective: 1,":           func(c *Config) { c.Objective = 1 },
		"objective: NaN":          func(c *Config) { c.Objective = math.NaN() },
		"min_delay: 0s":           func(c *Config) { c.MinDelay = 0 },
		"min_delay: 2h":           func(c *Config) { c.MinDelay = 2 * time.Hour },
		"max_delay: 500µs":        func(c *Config) { c.MaxDelay = 500 * time.Microsecond },
		"default_delay: -1ns":     func(c *Config) { c.DefaultDelay = -1 },
		"default_delay: 1µs":      func(c *Config) { c.DefaultDelay = time.Microsecond },
		"max_attempts: 1":         func(c *Config) { c.MaxAttempts = 1 },
		"max_attempts: 6":         func(c *Config) { c.MaxAttempts = 6 },
		"status code 17":          func(c *Config) { c.NonFatal = []uint32{14, 17} },
		"max_tokens: 1001":        func(c *Config) { c.Throttle.MaxTokens = 1001 },
		"token_ratio: 0, want":    func(c *Config) { c.Throttle.TokenRatio = 0 },
		"probation_cap: -0.1":     func(c *Config) { c.ProbationCap = -.1 },
		"probation_cap: NaN":      func(c *Config) { c.ProbationCap = math.NaN() },
		"valid_for: 0s":           func(c *Config) { c.ValidFor = 0 },
		"valid_for: 24h0m0.000":   func(c *Config) { c.ValidFor = policy.MaxValidFor + 1 },
		"max_delay: 1h0m0.000000": func(c *Config) { c.MaxDelay = policy.MaxDelay + 1 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestOverrideValidate(t *testing.T) {
	for _, c := range []struct {
		o    Override
		want string
	}{
		{Override{}, ""},
		{Override{HasMode: true, Mode: policy.ModeActive, Target: .1}, ""},
		{Override{Mode: 7}, ""},
		{Override{HasMode: true, Mode: 7}, "mode: 7"},
		{Override{Target: -1}, "target: -1"},
		{Override{Target: math.Inf(1)}, "target: +Inf"},
	} {
		err := c.o.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.o, err, c.want)
		}
	}
}

// A Config that was handed over is the Service's own.
func TestConfigIsCopied(t *testing.T) {
	cfg := configured()
	cfg.NonFatal = []uint32{14}
	s := New(testKey, cfg)
	cfg.NonFatal[0] = 99
	if got := s.Tick(epoch).Policy.Default.NonFatal[0]; got != 14 {
		t.Errorf("status code %d, want 14", got)
	}
}
