package config

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"

	"github.com/hedged-project/hedged/internal/suggest"
	"github.com/hedged-project/hedged/policy"
)

// value is how a setting of Go type V is written.
type value[V any] struct {
	kind    string // for people, such as "time"
	pattern string // regular expression of the schema; empty: any string
	options []string
	parse   func(string) (V, error)
	format  func(V) string
}

var text = value[string]{
	kind:   "text",
	parse:  func(s string) (string, error) { return s, nil },
	format: func(s string) string { return s },
}

var duration = value[time.Duration]{
	kind:    "time",
	pattern: `^([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+$|^0$`,
	parse: func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("%s is no time, want a number with its unit such as 15ms, 1.5s or 10m", quoted(s))
		}
		return d, nil
	},
	format: func(d time.Duration) string {
		s := d.String()
		if strings.HasSuffix(s, "m0s") {
			s = s[:len(s)-2]
		}
		if strings.HasSuffix(s, "h0m") {
			s = s[:len(s)-2]
		}
		return s
	},
}

var share = value[float64]{
	kind:    "share",
	pattern: `^[0-9]*\.?[0-9]+%?$`,
	parse: func(s string) (float64, error) {
		digits, percent := strings.CutSuffix(s, "%")
		f, err := strconv.ParseFloat(digits, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return 0, fmt.Errorf("%s is no share, want a number such as 0.05 or 5%%", quoted(s))
		}
		if percent {
			f = math.Round(f*1e7) / 1e9 // without the noise of binary fractions
		}
		return f, nil
	},
	format: func(f float64) string { return number.format(f) },
}

var number = value[float64]{
	kind:    "number",
	pattern: `^[0-9]*\.?[0-9]+$`,
	parse: func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return 0, fmt.Errorf("%s is no number", quoted(s))
		}
		return f, nil
	},
	format: func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) },
}

var count = value[int]{
	kind:    "whole number",
	pattern: `^[0-9]+$`,
	parse: func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, fmt.Errorf("%s is no whole number", quoted(s))
		}
		return n, nil
	},
	format: strconv.Itoa,
}

var modes = []string{policy.ModeOff.String(), policy.ModeShadow.String(), policy.ModeActive.String()}

var mode = value[policy.Mode]{
	kind:    "mode",
	options: modes,
	parse: func(s string) (policy.Mode, error) {
		if m, ok := policy.ParseMode(s); ok {
			return m, nil
		}
		return 0, fmt.Errorf("%s is no mode%s", quoted(s), suggest.For(s, modes))
	},
	format: policy.Mode.String,
}

var levels = []string{"debug", "info", "warn", "error"}

var level = value[slog.Level]{
	kind:    "level",
	options: levels,
	parse: func(s string) (slog.Level, error) {
		var l slog.Level
		for _, name := range levels {
			if s == name {
				return l, l.UnmarshalText([]byte(s))
			}
		}
		return l, fmt.Errorf("%s is no level%s", quoted(s), suggest.For(s, levels))
	},
	format: func(l slog.Level) string { return strings.ToLower(l.String()) },
}

// failures are the names of gRPC's status codes but OK, by number.
var failures = func() (names []string) {
	for n := codes.Canceled; n <= codes.Unauthenticated; n++ {
		names = append(names, code.Code(n).String())
	}
	return names
}()

// statusCodes are gRPC status codes by name, separated by commas.
var statusCodes = value[[]uint32]{
	kind: "codes",
	parse: func(s string) ([]uint32, error) {
		var list []uint32
		for name := range strings.SplitSeq(s, ",") {
			name = strings.TrimSpace(name)
			if name == "" {
				continue
			}
			i := slices.Index(failures, name)
			if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= len(failures) {
				i = n - 1
			}
			if i < 0 {
				return nil, fmt.Errorf("%s is no status code of a failure%s", quoted(name), suggest.For(name, failures))
			}
			list = append(list, uint32(i+1))
		}
		return list, nil
	},
	format: func(list []uint32) string {
		names := make([]string, len(list))
		for i, n := range list {
			names[i] = code.Code(n).String()
		}
		return strings.Join(names, ",")
	},
}

// quoted shows the start of what was written.
func quoted(s string) string {
	if len(s) > 40 {
		return strconv.Quote(s[:40]) + "..."
	}
	return strconv.Quote(s)
}
