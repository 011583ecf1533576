package wire

import (
	"strings"
	"testing"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
)

// The closed sets of policy and of the protos are the same sets: each value but
// "unspecified" has exactly one counterpart, so that one added on a single side
// fails here.

func TestModesMatch(t *testing.T) {
	bijective(t, hedgedv1.Mode_name, ModeToProto, ModeFromProto)
}

func TestReplicaStatesMatch(t *testing.T) {
	bijective(t, hedgedv1.ReplicaState_name, ReplicaStateToProto, replicaStateFromProto)
}

func TestReasonCodesMatch(t *testing.T) {
	// ReasonUnknown is the counterpart of "unspecified", so 0 takes part here.
	bijective(t, hedgedv1.ReasonCode_name, ReasonCodeToProto, ReasonCodeFromProto)
}

type plainEnum interface {
	~uint8
	String() string
}

func bijective[P plainEnum, W ~int32](t *testing.T, wireNames map[int32]string, to func(P) W, from func(W) P) {
	t.Helper()
	plain := 0
	for v := P(0); !strings.Contains(v.String(), "("); v++ { // "mode(7)" is the name of what is no mode
		plain++
		if got := from(to(v)); got != v {
			t.Errorf("%v goes out as %d (%s) and comes back as %v", v, to(v), wireNames[int32(to(v))], got)
		}
	}
	specified := 0
	for n, name := range wireNames {
		v := W(n)
		if to(from(v)) == v {
			specified++
		} else if n != 0 {
			t.Errorf("%s comes in as %v and goes out as %s", name, from(v), wireNames[int32(to(from(v)))])
		}
	}
	if plain != specified {
		t.Errorf("%d plain values against %d of the proto", plain, specified)
	}
}

func TestSuppressionsAreKnownByName(t *testing.T) {
	if len(suppressions) != int(policy.NumSuppressions) {
		t.Fatalf("%d names, want %d different ones", len(suppressions), policy.NumSuppressions)
	}
	if len(suppressions) > MaxSuppressed {
		t.Fatalf("%d names, but a frame holds at most %d", len(suppressions), MaxSuppressed)
	}
	for name, s := range suppressions {
		if name != s.String() || strings.Contains(name, "(") {
			t.Errorf("suppression %d is known as %q", s, name)
		}
	}
}

func TestUnknownValuesAreSafe(t *testing.T) {
	if got := ModeFromProto(99); got != policy.ModeOff {
		t.Errorf("mode 99 comes in as %v, want off", got)
	}
	if got := ModeFromProto(hedgedv1.Mode_MODE_UNSPECIFIED); got != policy.ModeOff {
		t.Errorf("no mode comes in as %v, want off", got)
	}
	if got := ModeToProto(99); got != hedgedv1.Mode_MODE_OFF {
		t.Errorf("mode(99) goes out as %v, want off", got)
	}
	if got := replicaStateFromProto(99); got != policy.ReplicaServing {
		t.Errorf("replica state 99 comes in as %v, want serving", got)
	}
	if got := ReasonCodeFromProto(99); got != policy.ReasonUnknown {
		t.Errorf("reason code 99 comes in as %v, want unknown", got)
	}
}
