package sim

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// latencyModel is the distribution of the time that a replica works on an
// attempt, stalls aside.
type latencyModel interface {
	// draw returns one latency.
	draw(r *rand.Rand) time.Duration
	// at returns the latency whose normal score is z: the quantile Phi(z). Copies
	// of a call are correlated by correlating their scores.
	at(z float64) time.Duration
}

// phi is the normal distribution function.
func phi(z float64) float64 { return .5 * math.Erfc(-z/math.Sqrt2) }

type constant time.Duration

func (m constant) draw(*rand.Rand) time.Duration { return time.Duration(m) }
func (m constant) at(float64) time.Duration      { return time.Duration(m) }

type uniform struct{ lo, hi time.Duration }

func (m uniform) draw(r *rand.Rand) time.Duration { return m.quantile(r.Float64()) }
func (m uniform) at(z float64) time.Duration      { return m.quantile(phi(z)) }
func (m uniform) quantile(u float64) time.Duration {
	return m.lo + time.Duration(u*float64(m.hi-m.lo))
}

type exponential struct{ mean time.Duration }

func (m exponential) draw(r *rand.Rand) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(m.mean))
}
func (m exponential) at(z float64) time.Duration {
	return time.Duration(-math.Log(phi(-z)) * float64(m.mean))
}

type lognormal struct {
	median time.Duration
	sigma  float64
}

func (m lognormal) draw(r *rand.Rand) time.Duration { return m.at(r.NormFloat64()) }
func (m lognormal) at(z float64) time.Duration {
	return time.Duration(float64(m.median) * math.Exp(m.sigma*z))
}

// pareto has P(X > t) = (least / t)^alpha.
type pareto struct {
	alpha float64
	least time.Duration
}

func (m pareto) draw(r *rand.Rand) time.Duration {
	return m.tail(1 - r.Float64())
}
func (m pareto) at(z float64) time.Duration { return m.tail(phi(-z)) }
func (m pareto) tail(p float64) time.Duration {
	return limited(float64(m.least) * math.Pow(p, -1/m.alpha))
}

// limited keeps a heavy tail within what a run can last.
func limited(ns float64) time.Duration {
	return time.Duration(min(ns, float64(longest)))
}

// empirical draws from measured latencies, sorted.
type empirical []time.Duration

func (m empirical) draw(r *rand.Rand) time.Duration { return m[r.IntN(len(m))] }
func (m empirical) at(z float64) time.Duration {
	return m[min(int(phi(z)*float64(len(m))), len(m)-1)]
}

// parseEmpirical reads one latency a line, such as "12.5ms"; lines that are empty
// or begin with # do not count.
func parseEmpirical(name string, text []byte) (empirical, error) {
	var m empirical
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		d, err := time.ParseDuration(line)
		if err != nil || d < 0 || d > longest {
			return nil, fmt.Errorf("%s:%d: latency: %.40q, want a time such as 12.5ms, 0s to %v", name, n, line, longest)
		}
		m = append(m, d)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("%s: latency: no line with a time, want at least one", name)
	}
	slices.Sort(m)
	return m, nil
}
