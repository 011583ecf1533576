package estimator

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// root64 is the 64th root of x, rounded down.
func root64(x *big.Int) *big.Int {
	r := new(big.Int).Set(x)
	for range Scale {
		r.Sqrt(r)
	}
	return r
}

// exactBoundary is floor(10^9 * 2^(i/64)), in integers.
func exactBoundary(i int) time.Duration {
	x := new(big.Int).Exp(big.NewInt(1e9), big.NewInt(perOctave), nil)
	if i >= 0 {
		x.Lsh(x, uint(i))
	} else {
		x.Rsh(x, uint(-i))
	}
	return time.Duration(root64(x).Int64())
}

func TestBoundariesAreExact(t *testing.T) {
	for j := range perOctave {
		x := new(big.Int).Lsh(big.NewInt(1), uint(mantissaBits*perOctave+j))
		want := root64(x).Uint64() - 1<<mantissaBits
		if boundaries[j] != want {
			t.Errorf("boundary %d is %#x, want %#x", j, boundaries[j], want)
		}
	}
}

func TestASliceHoldsAtMostOneBoundary(t *testing.T) {
	for k := range numSlices {
		inside := 0
		for _, b := range boundaries {
			if b>>sliceShift == uint64(k) {
				inside++
			}
		}
		if inside > 1 {
			t.Errorf("slice %d holds %d boundaries, want at most 1", k, inside)
		}
	}
}

// Every nanosecond beside every boundary is on its right side, by integer arithmetic.
func TestIndexAtEveryBoundary(t *testing.T) {
	exact := make([]time.Duration, MaxIndex-MinIndex+2)
	for k := range exact {
		i := MinIndex + k
		exact[k] = exactBoundary(i)
		if got := boundary(i); got != exact[k] {
			t.Errorf("boundary of %d is %d ns, want %d", i, got, exact[k])
		}
	}
	inside := func(i int, d time.Duration) bool {
		return exact[i-MinIndex] < d && d <= exact[i-MinIndex+1]
	}
	for _, b := range exact {
		for d := max(b-2, 1); d <= min(b+2, maxLatency); d++ {
			if i := Index(d); !inside(i, d) {
				t.Errorf("Index(%d ns) = %d, which holds (%d, %d] ns", d, i, exact[i-MinIndex], exact[i-MinIndex+1])
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		d := time.Duration(rng.Int64N(int64(maxLatency))>>rng.IntN(40)) + 1
		if i := Index(d); !inside(i, d) {
			t.Errorf("Index(%d ns) = %d, which holds (%d, %d] ns", d, i, exact[i-MinIndex], exact[i-MinIndex+1])
		}
	}
}

func TestIndexEnds(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want int
	}{
		{-1 << 63, MinIndex - 1},
		{-1, MinIndex - 1},
		{0, MinIndex - 1},
		{1, -1914},
		{time.Second, -1},
		{time.Second + 1, 0},
		{4096 * time.Second, MaxIndex},
		{4096*time.Second + 1, MaxIndex},
		{1<<63 - 1, MaxIndex},
	} {
		if got := Index(c.d); got != c.want {
			t.Errorf("Index(%d) = %d, want %d", c.d, got, c.want)
		}
	}
}
