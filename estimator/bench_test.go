package estimator

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// lognormal draws n latencies with a median of 10 ms and sigma 1, one in a
// hundred stalled for a second.
func lognormal(seed uint64, n int) []time.Duration {
	rng := rand.New(rand.NewPCG(seed, 0))
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = time.Duration(float64(10*time.Millisecond) * math.Exp(rng.NormFloat64()))
		if rng.IntN(100) == 0 {
			all[i] += time.Second
		}
	}
	return all
}

func histogramOf(latencies ...time.Duration) *Histogram {
	h := new(Histogram)
	for _, d := range latencies {
		h.Record(d)
	}
	return h
}

func BenchmarkRecord(b *testing.B) {
	ds := lognormal(1, 1<<12)
	b.Run("Histogram", func(b *testing.B) {
		h := histogramOf(ds...)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			h.Record(ds[i&(1<<12-1)])
			i++
		}
	})
	b.Run("Recorder", func(b *testing.B) {
		var r Recorder
		for _, d := range ds {
			r.Record(d)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			r.Record(ds[i&(1<<12-1)])
			i++
		}
	})
	b.Run("Recorder/parallel", func(b *testing.B) {
		var r Recorder
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			i := 0
			for pb.Next() {
				r.Record(ds[i&(1<<12-1)])
				i++
			}
		})
	})
}

// BenchmarkRecordWithWork has a call's worth of work (about 1 us) between two
// recordings, beside the same work alone.
func BenchmarkRecordWithWork(b *testing.B) {
	ds := lognormal(1, 1<<12)
	for _, record := range []bool{false, true} {
		name := "work"
		if record {
			name = "work+Record"
		}
		b.Run(name, func(b *testing.B) {
			var r Recorder
			b.RunParallel(func(pb *testing.PB) {
				x, i := 1.0, 0
				for pb.Next() {
					for range 100 {
						x = math.Sqrt(x + 2)
					}
					if record {
						r.Record(ds[i&(1<<12-1)])
					}
					i++
				}
				if x < 0 {
					b.Error(x)
				}
			})
		})
	}
}

func BenchmarkHistogram(b *testing.B) {
	h := histogramOf(lognormal(1, 10_000)...)
	wire, _ := h.AppendBinary(nil)
	small, _ := histogramOf(lognormal(1, 100)...).AppendBinary(nil)
	b.Logf("wire form: %d bytes at 10,000 samples, %d at 100", len(wire), len(small))
	into := h.Clone()
	for name, f := range map[string]func(){
		"Merge":             func() { into.Merge(h) },
		"Quantile":          func() { h.Quantile(.95) },
		"Exceedance":        func() { h.Exceedance(50 * time.Millisecond) },
		"AppendBinary":      func() { wire, _ = h.AppendBinary(wire[:0]) },
		"MergeBinary/10000": func() { _ = into.MergeBinary(wire) },
		"MergeBinary/100":   func() { _ = into.MergeBinary(small) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

func BenchmarkWindow(b *testing.B) {
	for _, c := range []struct {
		name string
		sub  time.Duration
		n    int
		rps  int
	}{{"1000rps/10x1s", time.Second, 10, 1000}, {"1000rps/40x250ms", 250 * time.Millisecond, 40, 1000}, {"20rps/10x1s", time.Second, 10, 20}} {
		w := NewWindow(c.sub, c.n)
		now := start
		var s *Sample
		fill := func(k uint64) {
			_, s = hedged(k, c.rps/4, 50*time.Millisecond, drawLognormal)
			now = now.Add(250 * time.Millisecond)
			w.Add(now, s)
		}
		for k := range uint64(50) {
			fill(k)
		}
		b.Run(c.name+"/DropChanged", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.grown = true
				w.DropChanged(50*time.Millisecond, 1)
			}
		})
		b.Run(c.name+"/AddAdvance", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(250 * time.Millisecond)
				w.Add(now, s)
			}
		})
		b.Run(c.name+"/Quantile", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.Total().Quantile(.95)
			}
		})
		b.Run(c.name+"/Exceedance", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.Total().Exceedance(48 * time.Millisecond)
			}
		})
	}
}
