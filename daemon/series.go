package daemon

import (
	"cmp"
	"math"
	"slices"
	"time"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/control"
)

const (
	seriesStep    = 10 * time.Second // one window of control's
	seriesPoints  = 360              // an hour
	seriesMethods = 10               // told apart, the busiest that are seen first
)

// series is a service's last hour, for charts. It belongs to the owner's
// goroutine; its points, once added, are never written to again.
type series struct {
	methods []string
	points  []seriesPoint // oldest first
}

type seriesPoint struct {
	at                             time.Time
	calls, extra, eligible, target float32             // calls a second, the rest shares; NaN: no calls
	methods                        []seriesMethodPoint // as in series.methods, or fewer
}

type seriesMethodPoint struct {
	delay, p99, p999 float32 // in seconds; NaN: none
}

// due reports whether it is time for another point.
func (s *series) due(now time.Time) bool {
	return len(s.points) == 0 || now.Sub(s.points[len(s.points)-1].at) >= seriesStep
}

// add takes in what a service is at now.
func (s *series) add(now time.Time, st control.Status) {
	p := seriesPoint{
		at:       now,
		calls:    float32(float64(st.Load.Calls) / st.Load.Window.Seconds()),
		extra:    known(st.Load.ExtraLoad()),
		eligible: known(st.Load.EligibleRate()),
		target:   float32(st.Target),
	}
	busiest := slices.SortedStableFunc(slices.Values(st.Methods), func(a, b control.MethodStatus) int {
		return cmp.Compare(b.Load.Calls, a.Load.Calls)
	})
	for _, m := range busiest {
		if len(s.methods) < seriesMethods && !slices.Contains(s.methods, m.Name) {
			s.methods = append(slices.Clip(s.methods), m.Name)
		}
	}
	none := float32(math.NaN())
	p.methods = slices.Repeat([]seriesMethodPoint{{none, none, none}}, len(s.methods))
	for _, m := range st.Methods {
		if i := slices.Index(s.methods, m.Name); i >= 0 {
			p.methods[i] = seriesMethodPoint{
				delay: known(m.Policy.Delay.Seconds(), m.Policy.Delay > 0),
				p99:   known(m.P99.Value.Seconds(), m.P99.OK),
				p999:  known(m.P999.Value.Seconds(), m.P999.OK),
			}
		}
	}
	kept := s.points[max(0, len(s.points)-seriesPoints+1):]
	s.points = slices.Concat(kept, []seriesPoint{p}) // a new one: snapshots share the one before
}

func known(x float64, ok bool) float32 {
	if !ok {
		return float32(math.NaN())
	}
	return float32(x)
}

func seriesToProto(s series) *hedgedv1.Series {
	m := &hedgedv1.Series{Methods: map[string]*hedgedv1.MethodSeries{}}
	for _, name := range s.methods {
		m.Methods[name] = &hedgedv1.MethodSeries{}
	}
	none := float32(math.NaN())
	for _, p := range s.points {
		m.AtUnix = append(m.AtUnix, p.at.Unix())
		m.CallsPerSecond = append(m.CallsPerSecond, p.calls)
		m.ExtraLoad = append(m.ExtraLoad, p.extra)
		m.EligibleRate = append(m.EligibleRate, p.eligible)
		m.Target = append(m.Target, p.target)
		for i, name := range s.methods {
			of, x := m.Methods[name], seriesMethodPoint{none, none, none}
			if i < len(p.methods) {
				x = p.methods[i]
			}
			of.DelaySeconds = append(of.DelaySeconds, x.delay)
			of.P99Seconds = append(of.P99Seconds, x.p99)
			of.P999Seconds = append(of.P999Seconds, x.p999)
		}
	}
	return m
}

// seriesFromProto reads a series that this daemon stored; what does not fit
// together is left out.
func seriesFromProto(m *hedgedv1.Series) (s series) {
	n := len(m.GetAtUnix())
	if n == 0 || n > seriesPoints || len(m.CallsPerSecond) != n || len(m.ExtraLoad) != n || len(m.EligibleRate) != n || len(m.Target) != n {
		return series{}
	}
	for name, of := range m.GetMethods() {
		if len(s.methods) < seriesMethods && len(of.GetDelaySeconds()) == n && len(of.GetP99Seconds()) == n && len(of.GetP999Seconds()) == n {
			s.methods = append(s.methods, name)
		}
	}
	slices.Sort(s.methods)
	for i := range n {
		p := seriesPoint{
			at: time.Unix(m.AtUnix[i], 0), calls: m.CallsPerSecond[i], extra: m.ExtraLoad[i],
			eligible: m.EligibleRate[i], target: m.Target[i],
		}
		for _, name := range s.methods {
			of := m.Methods[name]
			p.methods = append(p.methods, seriesMethodPoint{of.DelaySeconds[i], of.P99Seconds[i], of.P999Seconds[i]})
		}
		s.points = append(s.points, p)
	}
	return s
}
