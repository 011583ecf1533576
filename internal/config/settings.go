package config

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon"
	"github.com/hedged-project/hedged/policy"
)

// Config is everything that a daemon is told.
type Config struct {
	Daemon   daemon.Config
	LogLevel slog.Level
	// Warnings are about what was read and has no effect, such as an environment
	// variable that looks like a setting. They stop nobody.
	Warnings []string

	service control.Config // of a configured service that says nothing itself
}

// setting is one thing that an operator may set, of a T.
type setting[T any] struct {
	Name   string // in the file; see Flag and Variable
	Doc    string // a phrase, without the bounds
	Bounds string // a phrase; may be empty
	Kind   string // of its value, for people

	pattern string
	options []string
	set     func(*T, string) error
	get     func(*T) string
}

// of makes the setting of a field.
func of[T, V any](name string, v value[V], field func(*T) *V, doc, bounds string) setting[T] {
	return setting[T]{
		Name: name, Doc: doc, Bounds: bounds, Kind: v.kind,
		pattern: v.pattern, options: v.options,
		set: func(t *T, s string) error {
			x, err := v.parse(s)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			*field(t) = x
			return nil
		},
		get: func(t *T) string { return v.format(*field(t)) },
	}
}

// daemonSettings are of the daemon itself, in the order in which they are shown.
var daemonSettings = []setting[Config]{
	of("grpc", text, func(c *Config) *string { return &c.Daemon.GRPCAddr },
		"address of reports, policies and the admin API; port 0: any free one", "HOST:PORT on loopback"),
	of("http", text, func(c *Config) *string { return &c.Daemon.HTTPAddr },
		"address of /metrics, /healthz and /readyz; port 0: any free one", "HOST:PORT on loopback"),
	of("state_dir", text, func(c *Config) *string { return &c.Daemon.StateDir },
		"directory of the state file; created when absent", ""),
	of("cadence", duration, func(c *Config) *time.Duration { return &c.Daemon.Cadence },
		"time between the reports of a client", "100ms to 1m"),
	of("shutdown_timeout", duration, func(c *Config) *time.Duration { return &c.Daemon.ShutdownTimeout },
		"longest time from SIGTERM to the end", "more than 0s and at most 5m"),
	of("log_level", level, func(c *Config) *slog.Level { return &c.LogLevel },
		"least level that is logged", "debug, info, warn or error"),
}

// serviceSettings are of one service, in the order in which they are shown.
var serviceSettings = []setting[control.Config]{
	of("mode", mode, func(c *control.Config) *policy.Mode { return &c.Mode },
		"what clients do: off never hedges, shadow measures and advises, active hedges", "off, shadow or active"),
	of("target", share, func(c *control.Config) *float64 { return &c.Target },
		"most extra load: hedges per call, over the fleet and any 10 s", fmt.Sprintf("%g to %g", control.MinTarget, control.MaxTarget)),
	of("objective", number, func(c *control.Config) *float64 { return &c.Objective },
		"quantile of latency that hedging is to make short", fmt.Sprintf("%g to %g", control.MinObjective, control.MaxObjective)),
	of("min_delay", duration, func(c *control.Config) *time.Duration { return &c.MinDelay },
		"shortest delay before a hedge", fmt.Sprintf("more than 0s and at most %v", duration.format(policy.MaxDelay))),
	of("max_delay", duration, func(c *control.Config) *time.Duration { return &c.MaxDelay },
		"longest delay before a hedge", fmt.Sprintf("min_delay to %v", duration.format(policy.MaxDelay))),
	of("default_delay", duration, func(c *control.Config) *time.Duration { return &c.DefaultDelay },
		"delay while there is no estimate; 0s: no hedge then", "0s, or min_delay to max_delay"),
	of("max_attempts", count, func(c *control.Config) *int { return &c.MaxAttempts },
		"attempts of a call, its primary included", fmt.Sprintf("2 to %d", policy.MaxAttempts)),
	of("non_fatal", statusCodes, func(c *control.Config) *[]uint32 { return &c.NonFatal },
		"gRPC status codes after which the next attempt goes at once instead of ending the call", "names such as UNAVAILABLE"),
	of("max_tokens", number, func(c *control.Config) *float64 { return &c.Throttle.MaxTokens },
		"tokens of the failure throttle (gRFC A6); 0: none", fmt.Sprintf("0 to %d", policy.MaxTokens)),
	of("token_ratio", number, func(c *control.Config) *float64 { return &c.Throttle.TokenRatio },
		"tokens that a success gives back to the throttle (gRFC A6)", fmt.Sprintf("more than 0 and at most %d", policy.MaxTokens)),
	of("probation_cap", share, func(c *control.Config) *float64 { return &c.ProbationCap },
		"share of replicas that may be out of normal service at most, rounded down; 0: none", "0 to 1"),
	of("valid_for", duration, func(c *control.Config) *time.Duration { return &c.ValidFor },
		"life of a policy at a client that hears nothing more", fmt.Sprintf("more than 0s and at most %v", duration.format(policy.MaxValidFor))),
}
