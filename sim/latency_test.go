package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// What a model draws has the quantiles that its law has, and those of its scores.
func TestModels(t *testing.T) {
	t.Parallel()
	const z99 = 2.3263478740408408
	n := sized(500_000)
	ms := time.Millisecond
	for _, c := range []struct {
		m        latencyModel
		p50, p99 float64 // ms
		p999     float64
	}{
		{constant(10 * ms), 10, 10, 10},
		{uniform{5 * ms, 15 * ms}, 10, 14.9, 14.99},
		{exponential{10 * ms}, 6.931, 46.05, 69.08},
		{lognormal{10 * ms, 1}, 10, 102.4, 219.8},
		{lognormal{10 * ms, .5}, 10, 32.0, 46.9},
		{pareto{1.5, 2 * ms}, 3.175, 43.09, 200},
	} {
		r := rand.New(rand.NewPCG(1, 1))
		drawn := make([]time.Duration, n)
		for i := range drawn {
			drawn[i] = c.m.draw(r)
		}
		slices.Sort(drawn)
		name := fmt.Sprintf("%T%v", c.m, c.m)
		near(t, name+" p50", Millis(quantile(drawn, .5)), c.p50, .01)
		near(t, name+" p99", Millis(quantile(drawn, .99)), c.p99, .02)
		near(t, name+" p99.9", Millis(quantile(drawn, .999)), c.p999, .06)
		near(t, name+" at z of p50", Millis(c.m.at(0)), c.p50, .001)
		near(t, name+" at z of p99", Millis(c.m.at(z99)), c.p99, .001)
	}
}

func TestParseEmpirical(t *testing.T) {
	m, err := parseEmpirical("f", []byte("# measured\n3ms\n\n 1ms \n2.5ms\n"))
	if err != nil || len(m) != 3 || m[0] != time.Millisecond || m[2] != 3*time.Millisecond {
		t.Errorf("%v, %v", m, err)
	}
	if got := m.at(0); got != 2500*time.Microsecond {
		t.Errorf("median %v, want 2.5ms", got)
	}
	for text, want := range map[string]string{
		"":           "f: latency: no line with a time",
		"1ms\n2\n":   `f:2: latency: "2", want a time`,
		"-1ms":       `f:1: latency: "-1ms"`,
		"99999999h":  "f:1: latency",
		"1ms\nNaN\n": "f:2: latency",
	} {
		if _, err := parseEmpirical("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
