package report

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/hedged-project/hedged/estimator"
)

// Every count of a client's report is scaled: a field that is added must be, too.
func TestScaled(t *testing.T) {
	m := &Method{Replicas: map[string]*Replica{"r": {Failed: 10}}}
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i).Addr().Interface().(type) {
		case *uint64:
			*f = 10
		case *estimator.Histogram:
			f.RecordN(time.Second, 10)
		}
	}
	for i := range m.Suppressed {
		m.Suppressed[i] = 10
	}
	m.Pairs = make([]estimator.Pair, 10)
	for _, s := range []*estimator.Sample{&m.Replicas["r"].Primary, &m.Replicas["r"].Hedge} {
		s.Completed.RecordN(time.Second, 10)
		s.Censored.RecordN(time.Second, 10)
	}
	r := &Report{Sequence: 7, Interval: time.Second, Dropped: 10, Methods: map[string]*Method{"m": m}}
	for f, want := range map[float64]uint64{.5: 5, 3: 30, 0: 0, 1: 10} {
		s := r.Scaled(f, 0)
		got := s.Methods["m"]
		v := reflect.ValueOf(got).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch f := v.Field(i).Addr().Interface().(type) {
			case *uint64:
				if *f != want {
					t.Errorf("%s: %d, want %d", name, *f, want)
				}
			case *estimator.Histogram:
				if f.Count() != want {
					t.Errorf("%s: %d, want %d", name, f.Count(), want)
				}
			}
		}
		to := got.Replicas["r"]
		if to.Failed != want || to.Primary.Count() != 2*want || to.Hedge.Count() != 2*want {
			t.Errorf("replica %+v, want %d of each", to, want)
		}
		if got.Suppressed[1] != want || s.Dropped != want || s.Sequence != 7 || s.Interval != time.Second {
			t.Errorf("times %g: %+v", f, s)
		}
		if n := uint64(len(got.Pairs)); n != min(want, 10) {
			t.Errorf("%d pairs, want %d", n, min(want, 10))
		}
	}
	if got := r.Scaled(math.MaxFloat64, 0).Methods["m"].Calls; got != math.MaxUint64 {
		t.Errorf("%d calls, want as many as there can be", got)
	}
}
