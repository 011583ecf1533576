package hedge

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Twenty milliseconds are its delay. One call that outlives it makes no silence; a
// delay later the next does, and of the hedges that are due one goes each so often.
func TestSilence(t *testing.T) {
	const delay = 20 * ms
	var s Silence
	step := func(at time.Duration, news, silent, holds bool) {
		t.Helper()
		if got := s.Pending(at, delay); got != news {
			t.Errorf("at %v: news is %v", at, got)
		}
		if got := s.Silent(); got != silent {
			t.Errorf("at %v: silent is %v", at, got)
		}
		if got := s.Holds(at, delay); got != holds {
			t.Errorf("at %v: holds is %v", at, got)
		}
	}
	step(20*ms, false, false, false)
	s.Hedged(20 * ms)
	step(39*ms, false, false, false) // with the first
	step(40*ms, true, true, true)
	step(41*ms, false, true, true)
	step(99*ms, false, true, true)
	step(100*ms, false, true, false) // a lone call's second copy
	s.Hedged(100 * ms)
	step(120*ms, false, true, true)
	s.Answered()
	if s.Silent() || s.Holds(121*ms, delay) {
		t.Error("silent though something was answered")
	}
	step(140*ms, false, false, false)
	step(160*ms, true, true, false) // no hedge went in this silence
}

// Whatever happens, and at whatever times: what was answered ends a silence, and in
// one no two hedges that obey go within the hold of each other.
func TestSilenceAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delay := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "delay"))
		var s Silence
		var now, since, last time.Duration // last: hedge; since: the first pending call of the silence
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) {
				now += time.Duration(rapid.Int64Range(0, 3*int64(delay)).Draw(t, "time"))
			},
			"answer": func(t *rapid.T) {
				s.Answered()
				since = 0
				if s.Silent() {
					t.Fatal("silent after an answer")
				}
			},
			"due": func(t *rapid.T) {
				s.Pending(now, delay)
				if since == 0 {
					since = max(now, 1)
				}
				if want := now-since >= delay; s.Silent() != want {
					t.Fatalf("silent is %v %v after the first pending call, delay %v", !want, now-since, delay)
				}
				if s.Holds(now, delay) {
					return
				}
				if s.Silent() && last >= since && now-last < holdDelays*delay {
					t.Fatalf("hedges at %v and %v of a silence since %v, delay %v", last, now, since, delay)
				}
				s.Hedged(now)
				last = now
			},
		})
	})
}

func TestReportsOfALook(t *testing.T) {
	for _, c := range []struct {
		look  int
		calls uint64
		want  bool
	}{{0, 0, true}, {1, 0, false}, {1, 99, false}, {1, 100, true}, {3, 99, false}, {4, 0, true}, {5, 1e6, true}, {8, 0, true}} {
		if got := Reports(c.look, c.calls); got != c.want {
			t.Errorf("look %d after %d calls: %v", c.look, c.calls, got)
		}
	}
}
