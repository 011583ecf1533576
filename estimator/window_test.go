package estimator

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func sampleOf(completed ...time.Duration) *Sample {
	return &Sample{Completed: *histogramOf(completed...)}
}

func expectSameSample(t rapid.TB, what string, got, want *Sample) {
	t.Helper()
	expectSame(t, what+", completed", &got.Completed, &want.Completed)
	expectSame(t, what+", censored", &got.Censored, &want.Censored)
}

// In any order of adding, advancing, late and early times, and dropping, the
// total is what was added to the sub-windows that are left.
func TestWindowTotalIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "sub-windows")
		w := NewWindow(time.Second, n)
		w.Advance(start)
		kept := map[int]*Sample{}
		head, oldest := 0, 1-n
		var refused uint64
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			k := head + rapid.IntRange(-n-1, 2).Draw(t, "step")
			if rapid.IntRange(0, 20).Draw(t, "jump") == 0 {
				k = head + rapid.IntRange(-1e9, 1e9).Draw(t, "far")
			}
			now := start.Add(time.Duration(k)*time.Second + time.Duration(rapid.IntRange(0, 999).Draw(t, "ms"))*time.Millisecond)
			head = max(head, k)
			oldest = max(oldest, head-n+1)
			if rapid.Bool().Draw(t, "advance only") {
				w.Advance(now)
			} else {
				s := sampleOf(latencies().Draw(t, "completed")...)
				s.Censored.Merge(histogramOf(latencies().Draw(t, "censored")...))
				w.Add(now, s)
				if k < oldest {
					refused += s.Count()
				} else {
					if kept[k] == nil {
						kept[k] = new(Sample)
					}
					kept[k].Merge(s)
				}
			}
			want := new(Sample)
			for k, s := range kept {
				if k >= oldest {
					want.Merge(s)
				}
			}
			expectSameSample(t, "total", w.Total(), want)
			if w.Refused() != refused {
				t.Fatalf("refused %d, want %d", w.Refused(), refused)
			}
		}
	})
}

// 1,000 calls of 500 ms, then silence for three windows: no estimate, neither
// 500 ms nor 0. The first new call is all that counts then.
func TestSilenceLeavesNoEstimate(t *testing.T) {
	w := NewWindow(time.Second, 10)
	for k := range 1000 {
		w.Add(start.Add(time.Duration(k)*time.Millisecond), sampleOf(500*time.Millisecond))
	}
	if d, ok := w.Total().Quantile(.5); !ok || d < 490*time.Millisecond || d > 510*time.Millisecond {
		t.Fatalf("median is %v, %v, want 500 ms", d, ok)
	}
	now := start.Add(30 * time.Second)
	w.Advance(now)
	if d, ok := w.Total().Quantile(.5); ok || d != 0 || w.Total().Count() != 0 {
		t.Errorf("median after silence is %v, %v of %d, want none", d, ok, w.Total().Count())
	}
	w.Add(now.Add(time.Minute), sampleOf(time.Millisecond))
	expectSameSample(t, "after the first new call", w.Total(), sampleOf(time.Millisecond))
}

// The last sub-window leaves exactly when the window after it has passed.
func TestExpiry(t *testing.T) {
	w := NewWindow(time.Second, 10)
	w.Add(start, sampleOf(time.Second))
	w.Advance(start.Add(10*time.Second - 1))
	if w.Total().Count() != 1 {
		t.Error("gone before the window passed")
	}
	w.Advance(start.Add(10 * time.Second))
	if w.Total().Count() != 0 {
		t.Error("still there after the window passed")
	}
}

// Traffic, two minutes of nothing, traffic again: there is an estimate at once,
// of the new traffic alone.
func TestTrafficAfterIdleIsEstimatedAtOnce(t *testing.T) {
	w := NewWindow(time.Second, 10)
	w.Add(start, sampleOf(lognormal(1, 1000)...))
	now := start.Add(2 * time.Minute)
	w.Advance(now)
	w.Add(now, sampleOf(2*time.Millisecond, 2*time.Millisecond))
	if d, ok := w.Total().Quantile(.95); !ok || d > 3*time.Millisecond || w.Total().Count() != 2 {
		t.Errorf("p95 is %v, %v of %d, want 2 ms of 2", d, ok, w.Total().Count())
	}
	if dropped := w.DropChanged(0, 1); dropped != 0 {
		t.Errorf("dropped %d sub-windows, want none", dropped)
	}
}

// Three calls a minute of 0.4 ms: whoever reads the quantile sees on how few
// calls it stands, and that it is below a millisecond.
func TestFewCallsAreSeenAsFew(t *testing.T) {
	w := NewWindow(time.Second, 10)
	for k := range 30 {
		now := start.Add(time.Duration(k) * 20 * time.Second)
		w.Add(now, sampleOf(400*time.Microsecond))
		d, ok := w.Total().Quantile(.95)
		if n := w.Total().Count(); n != 1 || !ok || d < 397*time.Microsecond || d > 403*time.Microsecond {
			t.Fatalf("call %d: p95 is %v, %v of %d, want 0.4 ms of 1", k, d, ok, n)
		}
	}
}

// Frames that would take the total past 64 bits are refused, so that subtracting
// them later takes nothing else away.
func TestWindowDoesNotSaturate(t *testing.T) {
	w := NewWindow(time.Second, 2)
	huge := new(Sample)
	huge.Completed.RecordN(time.Second, math.MaxUint64)
	w.Add(start, sampleOf(time.Millisecond))
	w.Add(start, huge)
	w.Add(start.Add(time.Second), sampleOf(time.Millisecond))
	if w.Total().Count() != 2 || w.Refused() != math.MaxUint64 {
		t.Errorf("count %d, refused %d, want 2, 2^64 - 1", w.Total().Count(), w.Refused())
	}
}

func TestWindowWithoutLengthPanics(t *testing.T) {
	for _, f := range []func(){func() { NewWindow(0, 1) }, func() { NewWindow(time.Second, 0) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		}()
	}
}

func TestWindowKeepsMoreOrLess(t *testing.T) {
	w := NewWindow(time.Second, 4)
	at := func(i int) time.Time { return time.Unix(0, 0).Add(time.Duration(i) * time.Second) }
	w.Keep(2)
	for i := range 6 {
		w.Add(at(i), sampleOf(time.Millisecond))
	}
	count := func(what string, want uint64) {
		t.Helper()
		if got := w.Total().Count(); got != want {
			t.Errorf("%s: %d attempts, want %d", what, got, want)
		}
	}
	count("of the last two", 2)
	w.Keep(9) // no more than it was made for
	count("what expired", 2)
	for i := 6; i < 12; i++ {
		w.Add(at(i), sampleOf(time.Millisecond))
	}
	count("of the last four", 4)
	w.Keep(3)
	count("of the last three", 3)
	w.Add(at(9), sampleOf(time.Millisecond))
	count("and one more for the oldest", 4)
	w.Add(at(8), sampleOf(time.Millisecond))
	count("and one for what expired", 4)
	w.Keep(0)
	count("of the open one", 1)
	w.Advance(at(100))
	count("after silence", 0)
}
