package state

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hedged-project/hedged/policy"
)

var (
	keyA = policy.Key{Tenant: "default", Service: "a"}
	keyB = policy.Key{Tenant: "default", Service: "b"}
)

func mode(m policy.Mode) Override { return Override{Mode: m, HasMode: true} }

func target(v float64) Override { return Override{Target: v} }

func (o Override) about(key policy.Key) Override { o.Key = key; return o }

func inOrder(overrides ...Override) (c commands) {
	for i, o := range overrides {
		o.Serial = uint64(i + 1)
		c = c.with(o)
	}
	return c
}

func TestLastCommandWins(t *testing.T) {
	off, on, cleared := mode(policy.ModeOff), mode(policy.ModeActive), Override{Cleared: true}
	for name, c := range map[string]struct {
		commands commands
		a, b     string
	}{
		"none":                     {inOrder(), "configured", "configured"},
		"one":                      {inOrder(off.about(keyA)), "off", "configured"},
		"all off":                  {inOrder(off), "off", "off"},
		"all off, then one on":     {inOrder(off, on.about(keyA)), "active", "off"},
		"one on, then all off":     {inOrder(on.about(keyA), off), "off", "off"},
		"all off, one cleared":     {inOrder(off, cleared.about(keyA)), "configured", "off"},
		"one off, all cleared":     {inOrder(off.about(keyA), cleared), "configured", "configured"},
		"cleared and off again":    {inOrder(off, cleared.about(keyA), off), "off", "off"},
		"one off, that one loosed": {inOrder(off.about(keyA), on.about(keyA)), "active", "configured"},
	} {
		for key, want := range map[policy.Key]string{keyA: c.a, keyB: c.b} {
			got := "configured"
			if o, ok := c.commands.effective(key, time.Time{}); ok {
				got = o.Mode.String()
			}
			if got != want {
				t.Errorf("%s: %v is %s, want %s", name, key, got, want)
			}
		}
	}
}

// A command that is over counts no more: an older one for all does again.
func TestCommandsEnd(t *testing.T) {
	start := time.UnixMilli(1_000_000)
	on := mode(policy.ModeActive).about(keyA)
	on.Until = start.Add(time.Minute)
	off := mode(policy.ModeOff)
	off.Until = start.Add(time.Hour)
	c := inOrder(off, on)
	for after, want := range map[time.Duration]string{
		0:                            "active",
		time.Minute - 1:              "active",
		time.Minute:                  "off",
		time.Hour - time.Millisecond: "off",
		time.Hour:                    "configured",
	} {
		got := "configured"
		if o, ok := c.effective(keyA, start.Add(after)); ok {
			got = o.Mode.String()
		}
		if got != want {
			t.Errorf("after %v: %s, want %s", after, got, want)
		}
	}
	if n := len(c.current(start.Add(time.Minute))); n != 1 {
		t.Errorf("%d commands count after a minute, want 1", n)
	}
	if len(c.past) != 2 {
		t.Errorf("%d commands are remembered, want 2", len(c.past))
	}
}

// The latest commands are remembered, and come back from what is stored.
func TestPastIsBounded(t *testing.T) {
	var c commands
	for i := range maxPast + 10 {
		o := mode(policy.ModeOff)
		o.Serial, o.SetAt = uint64(i+1), time.UnixMilli(int64(i)).UTC()
		c = c.with(o)
	}
	b, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeCommands(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(back.past) != maxPast || back.past[0] != c.past[0] || back.past[0].Serial != 11 {
		t.Errorf("%d commands from serial %d, want %d from 11", len(back.past), back.past[0].Serial, maxPast)
	}
}

func TestTightens(t *testing.T) {
	const configured = 0.05
	for name, c := range map[string]struct {
		before commands
		o      Override
		want   bool
	}{
		"off":                             {inOrder(), mode(policy.ModeOff), true},
		"shadow after off":                {inOrder(mode(policy.ModeOff)), mode(policy.ModeShadow), true},
		"on":                              {inOrder(), mode(policy.ModeActive), false},
		"clear":                           {inOrder(mode(policy.ModeOff)), Override{Cleared: true}, false},
		"smaller target":                  {inOrder(), target(0.02), true},
		"larger target":                   {inOrder(), target(0.06), false},
		"smaller than configured only":    {inOrder(target(0.01).about(keyA)), target(0.02).about(keyA), false},
		"smaller than the last":           {inOrder(target(0.03).about(keyA)), target(0.02).about(keyA), true},
		"target would end an off":         {inOrder(mode(policy.ModeOff).about(keyA)), target(0.02).about(keyA), false},
		"target would end an off for all": {inOrder(mode(policy.ModeOff)), target(0.02).about(keyA), false},
		"target for all ends one's off":   {inOrder(mode(policy.ModeOff).about(keyA)), target(0.02), false},
		"another service is off":          {inOrder(mode(policy.ModeOff).about(keyB)), target(0.02).about(keyA), true},
	} {
		if got := c.before.tightens(c.o, configured, time.Time{}); got != c.want {
			t.Errorf("%s: tightens is %v, want %v", name, got, c.want)
		}
	}
}

// Saves may end out of order: what is in force depends on the serials only.
func TestCommandsInAnyOrder(t *testing.T) {
	keys := []policy.Key{{}, keyA, keyB}
	rapid.Check(t, func(t *rapid.T) {
		var list []Override
		for i := range rapid.IntRange(1, 8).Draw(t, "n") {
			o := mode(policy.Mode(rapid.IntRange(0, 2).Draw(t, "mode"))).about(rapid.SampledFrom(keys).Draw(t, "key"))
			o.Serial = uint64(i + 1)
			list = append(list, o)
		}
		var sorted, shuffled commands
		for _, o := range list {
			sorted = sorted.with(o)
		}
		for _, o := range rapid.Permutation(list).Draw(t, "order") {
			shuffled = shuffled.with(o)
		}
		for _, key := range keys[1:] {
			want, ok := sorted.effective(key, time.Time{})
			if got, gotOK := shuffled.effective(key, time.Time{}); got != want || ok != gotOK {
				t.Fatalf("%v is %+v, in order %+v", key, got, want)
			}
		}
	})
}

func TestOverrideValidate(t *testing.T) {
	for want, o := range map[string]Override{
		"tenant":             mode(policy.ModeOff).about(policy.Key{Service: "a"}),
		"override.mode: 9":   mode(9),
		"override.target: 2": target(2),
		"target: NaN":        target(math.NaN()),
		"target: -0.1":       target(-0.1),
		"override.cleared":   {Cleared: true, HasMode: true},
		"no mode":            {},
		"1025":               {Cleared: true, Reason: strings.Repeat("x", 1025)},
		"UTF-8":              {Cleared: true, Author: "\xff"},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate(%+v) = %v, want it to name %q", o, err, want)
		}
	}
}

// Any bytes are the whole of what some state wrote, or an error.
func FuzzDecodeCommands(f *testing.F) {
	seed := inOrder(mode(policy.ModeOff), target(0.02).about(keyA), Override{Cleared: true, Author: "ann", Reason: "ok\n", SetAt: time.UnixMilli(5)}.about(keyB))
	good, err := seed.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(bytes.Replace(good, []byte("off"), []byte("on"), 1))
	f.Add([]byte{})
	f.Add([]byte("{}\ncrc32c 3d4a2a4e\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		// A true sum, so that what lies behind it is reached.
		line, _, _ := bytes.Cut(b, []byte("\n"))
		for _, b := range [][]byte{b, sealed(line)} {
			c, err := decodeCommands(b)
			if err != nil {
				continue
			}
			again, err := c.encode()
			if err != nil {
				t.Fatal(err)
			}
			c2, err := decodeCommands(again)
			if err != nil || c2.serial != c.serial || len(c2.list()) != len(c.list()) {
				t.Fatalf("%q decodes, its encoding %q does not: %v", b, again, err)
			}
		}
	})
}
