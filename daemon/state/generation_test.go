package state

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hedged-project/hedged/policy"
)

// Whatever the disk does to reservations, and whenever the process dies, no
// generation is handed out twice, as long as the clock moves between two starts.
func TestNumbersAreNeverReused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMilli(1_900_000_000_000)
		used := map[policy.Generation]bool{}
		var stored, inFlight reservation
		n := newNumbering(now, 0)
		t.Repeat(map[string]func(*rapid.T){
			"next": func(t *rapid.T) {
				// Jumps stand for many numbers that were handed out.
				if jump := rapid.Uint64Range(0, block).Draw(t, "jump"); n.number+jump < n.limit {
					n.number += jump
				}
				g := n.next(now)
				if used[g] {
					t.Fatalf("%v was handed out twice", g)
				}
				used[g] = true
			},
			"reserve": func(t *rapid.T) {
				if !n.low() {
					return
				}
				inFlight = n.reserve()
				landed, known := rapid.Bool().Draw(t, "landed"), rapid.Bool().Draw(t, "known")
				if landed {
					stored = inFlight
				}
				if landed && known {
					n.reserved(inFlight)
				}
			},
			"restart": func(t *rapid.T) {
				now = now.Add(time.Millisecond * time.Duration(rapid.IntRange(1, 1000).Draw(t, "down")))
				if stored.Epoch == 0 {
					n = newNumbering(now, n.epoch)
				} else {
					n = resume(stored)
				}
				n.observe(newest(used), now)
			},
			"observe": func(t *rapid.T) {
				n.observe(n.epoch+rapid.Uint64Range(0, 5).Draw(t, "ahead"), now)
			},
			"": func(t *rapid.T) {
				if stored.Epoch == n.epoch && n.number > max(stored.Bound, n.saved) {
					t.Fatalf("number %d of epoch %d is above the stored bound %d", n.number, n.epoch, stored.Bound)
				}
			},
		})
	})
}

func newest(used map[policy.Generation]bool) (epoch uint64) {
	for g := range used {
		epoch = max(epoch, g.Epoch)
	}
	return epoch
}

func TestObserveEpoch(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_000)
	ms := uint64(now.UnixMilli())
	day := uint64((24 * time.Hour).Milliseconds())
	for name, c := range map[string]struct{ reported, want uint64 }{
		"older":                {ms - 5, ms},
		"our own":              {ms, ms},
		"higher":               {ms + 7, ms + 8},
		"a day ahead":          {ms + day, ms + day + 1},
		"over a day ahead":     {ms + day + 1, ms},
		"the largest possible": {1<<64 - 1, ms},
	} {
		n := newNumbering(now, 0)
		n.next(now)
		raised := n.observe(c.reported, now)
		if n.epoch != c.want || raised != (c.want != ms) {
			t.Errorf("%s: epoch is %d, raised %v; want %d", name, n.epoch, raised, c.want)
		}
		if g := n.next(now); raised && g.Number != 1 {
			t.Errorf("%s: first generation of the new epoch is %v", name, g)
		}
	}
}

func FuzzDecodeReservation(f *testing.F) {
	good, err := reservation{Epoch: 1_900_000_000_000, Bound: block}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"epoch":18446744073709551615,"bound":1}`))
	f.Add([]byte(`{"epoch":-1}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeReservation(b)
		if err != nil {
			return
		}
		n := resume(r)
		before := policy.Generation{Epoch: r.Epoch, Number: r.Bound}
		if g := n.next(time.UnixMilli(0)); g.Compare(before) <= 0 {
			t.Fatalf("%v follows the stored %v", g, before)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	now := time.UnixMilli(1_900_000_000_000)
	n := newNumbering(now, 0)
	b.ReportAllocs()
	for b.Loop() {
		n.next(now)
	}
}
