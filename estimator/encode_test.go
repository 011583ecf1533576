package estimator

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func encoded(t rapid.TB, h *Histogram) []byte {
	t.Helper()
	b, err := h.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEncodeDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := histogramOf(latencies().Draw(t, "latencies")...)
		for range rapid.IntRange(0, 8).Draw(t, "heavy") {
			h.RecordN(latency().Draw(t, "d"), rapid.Uint64Range(0, 1<<36).Draw(t, "n")>>rapid.IntRange(0, 35).Draw(t, "shift"))
		}
		b := encoded(t, h)
		got := histogramOf(latencies().Draw(t, "before")...)
		if err := got.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		expectSame(t, "decoded", got, h)
		if again := encoded(t, got); string(again) != string(b) {
			t.Fatalf("encoded again: %x, want %x", again, b)
		}

		merged := histogramOf(latencies().Draw(t, "other")...)
		want := merged.Clone()
		want.Merge(h)
		if err := merged.MergeBinary(b); err != nil {
			t.Fatal(err)
		}
		expectSame(t, "merged from bytes", merged, want)
	})
}

func TestEncodedSize(t *testing.T) {
	for _, c := range []struct{ samples, bytes int }{{100, 100}, {10_000, 600}} {
		const seeds = 20
		sum := 0
		for seed := range uint64(seeds) {
			sum += len(encoded(t, histogramOf(lognormal(seed, c.samples)...)))
		}
		t.Logf("%d samples: %d bytes", c.samples, sum/seeds)
		if sum > seeds*c.bytes {
			t.Errorf("%d samples: %d bytes on average, want at most %d", c.samples, sum/seeds, c.bytes)
		}
	}
	if b := encoded(t, new(Histogram)); len(b) != 0 {
		t.Errorf("an empty histogram takes %d bytes, want none", len(b))
	}
	var full Histogram
	full.RecordN(0, 1<<30)
	for i := MinIndex; i <= MaxIndex; i++ {
		full.recordIndex(i, 1<<28)
	}
	for i := range 20 {
		full.recordIndex(MinIndex+100*i, 1<<34)
	}
	if n := len(encoded(t, &full)); n > MaxEncoded {
		t.Errorf("all buckets full take %d bytes, want at most %d", n, MaxEncoded)
	}
}

func TestEncodeRefusesTooMuch(t *testing.T) {
	var h Histogram
	h.RecordN(time.Second, MaxEncodedCount+1)
	if _, err := h.AppendBinary(nil); err == nil || !strings.Contains(err.Error(), "total is 1099511627777, want at most 1099511627776") {
		t.Errorf("error is %v, want one that names the total and its bound", err)
	}
}

// encodedAt is the wire form of latencies at any scale, by logarithms.
func encodedAt(scale int, latencies ...time.Duration) []byte {
	counts := map[int]uint64{}
	first, last := math.MaxInt, math.MinInt
	for _, d := range latencies {
		i := int(math.Ceil(math.Log2(d.Seconds())*math.Exp2(float64(scale)))) - 1
		counts[i]++
		first, last = min(first, i), max(last, i)
	}
	b := []byte{byte(wireVersion<<versionShift | scale), 0}
	b = binary.AppendVarint(b, int64(first))
	next := first
	for i := first; i <= last; i++ {
		if counts[i] > 0 {
			b = appendToken(b, uint64(i-next), counts[i])
			next = i + 1
		}
	}
	return b
}

// Two clients report one method at different accuracies: a finer form is
// converted, and gives what that client would have sent at our scale; a coarser
// one is refused. Neither is added bin by bin.
func TestOtherScalesAreConvertedOrRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var all []time.Duration
	for range 1000 {
		all = append(all, time.Duration(float64(10*time.Millisecond)*math.Exp(rng.NormFloat64())))
	}
	for scale := Scale; scale <= 12; scale++ {
		h := histogramOf(all...)
		if err := h.MergeBinary(encodedAt(scale, all...)); err != nil {
			t.Fatalf("scale %d: %v", scale, err)
		}
		expectSame(t, "two clients", h, histogramOf(append(all, all...)...))
	}
	for _, scale := range []int{0, 5, 21, 31} {
		h := histogramOf(time.Second)
		for _, err := range []error{h.MergeBinary(encodedAt(scale, time.Second)), h.UnmarshalBinary(encodedAt(scale, time.Second))} {
			if err == nil || !strings.Contains(err.Error(), "want 6 to 20") {
				t.Errorf("scale %d: error is %v, want a refusal that names the scales", scale, err)
			}
		}
		expectSame(t, "after a refusal", h, histogramOf(time.Second))
	}
}

// hostile are forms that must be refused, with what the error must say.
func hostile() map[string]struct{ form, says string } {
	head := string([]byte{wireVersion<<versionShift | Scale})
	varint := func(v int64) string { return string(binary.AppendVarint(nil, v)) }
	uvarint := func(v uint64) string { return string(binary.AppendUvarint(nil, v)) }
	valid := head + "\x00" + varint(0)
	return map[string]struct{ form, says string }{
		"other version":             {"\x46\x00\x00\x00", "version is 2, want 1"},
		"coarser scale":             {"\x25\x00\x00\x00", "scale is 5, want 6 to 20"},
		"no zero count":             {head, "ends inside a number"},
		"endless zero count":        {head + strings.Repeat("\xff", 11), "ends inside a number"},
		"zero count over the bound": {head + uvarint(1<<41), "zero count is 2199023255552, want at most"},
		"endless first bucket":      {head + "\x00\xff", "ends inside a number"},
		"first bucket too low":      {head + "\x00" + varint(MinIndex-1) + "\x00", "first bucket is -1921"},
		"first bucket too high":     {head + "\x00" + varint(MaxIndex+1) + "\x00", "first bucket is 768"},
		"first bucket wraps":        {head + "\x00" + varint(math.MinInt64) + "\x00", "first bucket is -9223372036854775808"},
		"no token":                  {valid, "ends with a gap"},
		"gap at the end":            {valid + "\x00\xfe\x05", "ends with a gap"},
		"cut wide count":            {valid + "\x60", "ends inside a number"},
		"cut count":                 {valid + "\xff\x80", "ends inside a number"},
		"count of zero":             {valid + "\xff\x00", "has a count or gap of 0"},
		"gap of zero":               {valid + "\xfe\x00\x00", "has a count or gap of 0"},
		"huge gap":                  {valid + "\x00\xfe" + uvarint(6.6e12) + "\x00", "gap is 6600000000000, want at most 768"},
		"largest gap":               {valid + "\x00\xfe" + uvarint(math.MaxUint64) + "\x00", "gap is 18446744073709551615, want at most 768"},
		"gaps past the top":         {valid + strings.Repeat("\xfe\xff\x05", 2) + "\x00", "last bucket is 1534, want at most 767"},
		"counts past the top":       {valid + strings.Repeat("\x00", MaxIndex+2), "last bucket is 768, want at most 767"},
		"huge count":                {valid + "\xff" + uvarint(math.MaxUint64), "count is 18446744073709551615, want at most"},
		"sum over the bound":        {valid + "\x00\xff" + uvarint(MaxEncodedCount), "total is 1099511627777, want at most"},
		"too long":                  {valid + strings.Repeat("\x00", MaxEncoded), "want at most 16384"},
	}
}

// A crafted frame (huge gaps, counts longer than the buffer, truncation) is an
// error of that frame alone: what is wrong is named, nothing changes and no
// memory is taken for it.
func TestHostileFormsAreRefused(t *testing.T) {
	for name, c := range hostile() {
		t.Run(name, func(t *testing.T) {
			h := histogramOf(0, time.Second)
			form := []byte(c.form)
			for _, err := range []error{h.UnmarshalBinary(form), h.MergeBinary(form)} {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error is %v, want one that says %q", err, c.says)
				}
			}
			expectSame(t, "after the refusal", h, histogramOf(0, time.Second))
			if len(h.octaves) != 1 {
				t.Errorf("holds memory for %d octaves, want 1 as before", len(h.octaves))
			}
		})
	}
}

func TestEveryTruncationIsAnErrorOrAWholeForm(t *testing.T) {
	whole := encoded(t, histogramOf(lognormal(6, 3000)...))
	for n := range whole {
		h := histogramOf(time.Second)
		if err := h.UnmarshalBinary(whole[:n]); err != nil {
			expectSame(t, "after the refusal", h, histogramOf(time.Second))
			continue
		}
		if h.Count() >= 3000 {
			t.Errorf("%d of %d bytes hold %d latencies", n, len(whole), h.Count())
		}
	}
}

func FuzzUnmarshalBinary(f *testing.F) {
	for _, c := range hostile() {
		f.Add([]byte(c.form))
	}
	for _, n := range []int{0, 1, 100, 10_000} {
		b, _ := histogramOf(lognormal(1, n)...).AppendBinary(nil)
		f.Add(b)
	}
	f.Add(encodedAt(12, lognormal(2, 100)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Histogram
		merged := histogramOf(0, time.Second)
		if err := h.UnmarshalBinary(b); err != nil {
			if h.Count() != 0 || len(h.octaves) != 0 {
				t.Fatalf("refused (%v), but holds %d in %d octaves", err, h.Count(), len(h.octaves))
			}
			if merged.MergeBinary(b) == nil {
				t.Fatalf("merged, though it is refused: %v", err)
			}
			expectSame(t, "after the refusal", merged, histogramOf(0, time.Second))
			return
		}
		if err := merged.MergeBinary(b); err != nil {
			t.Fatal(err)
		}
		merged.Subtract(histogramOf(0, time.Second))
		expectSame(t, "merged", merged, &h)
		var again Histogram
		if err := again.UnmarshalBinary(encoded(t, &h)); err != nil {
			t.Fatal(err)
		}
		expectSame(t, "encoded and decoded", &again, &h)
		if h.Count() > 0 {
			if d, ok := h.Quantile(1); !ok || d < 0 || d > maxLatency {
				t.Fatalf("maximum is %v, %v", d, ok)
			}
		}
	})
}
