package hedge

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hedged-project/hedged/policy"
)

const ms = time.Millisecond

// started returns the plan of a call whose primary was sent.
func started(delay time.Duration, attempts int) Plan {
	p := NewPlan(&policy.Method{Delay: delay, Probability: 1, MaxAttempts: attempts})
	p.Started(0)
	return p
}

func wantNext(t *testing.T, p *Plan, want time.Duration) {
	t.Helper()
	if at, ok := p.Next(); !ok || at != want {
		t.Errorf("Next = %v, %v, want %v", at, ok, want)
	}
}

func wantNoNext(t *testing.T, p *Plan) {
	t.Helper()
	if at, ok := p.Next(); ok {
		t.Errorf("Next = %v, want no more attempts", at)
	}
}

func wantAction(t *testing.T, got, want Action) {
	t.Helper()
	if got != want {
		t.Errorf("action %d, want %d", got, want)
	}
}

func TestPlanSchedule(t *testing.T) {
	p := started(10*ms, 3)
	wantNext(t, &p, 10*ms)
	p.Started(10 * ms)
	wantNext(t, &p, 20*ms)
	p.Started(20 * ms)
	wantNoNext(t, &p)
	wantAction(t, p.Ended(25*ms, Acceptable, Pushback{}), Commit)
}

func TestPlanNeverHedges(t *testing.T) {
	for name, m := range map[string]policy.Method{
		"zero":          {},
		"no estimate":   {Probability: 1, MaxAttempts: 3},
		"one attempt":   {Delay: ms, Probability: 1, MaxAttempts: 1},
		"probability 0": {Delay: ms, MaxAttempts: 3},
	} {
		p := NewPlan(&m)
		p.Started(0)
		wantNoNext(t, &p)
		if got := p.Ended(ms, NonFatal, Pushback{}); got != Commit {
			t.Errorf("%s: after a failure action %d, want Commit", name, got)
		}
	}
}

// The first attempt fails fast, and nothing lets another one go: the failure is
// the call's at once, not a deadline error at the end.
func TestPlanRefusedAfterFailure(t *testing.T) {
	p := started(time.Second, 3)
	wantAction(t, p.Ended(ms, NonFatal, Pushback{}), AttemptNow)
	wantAction(t, p.Waiting(ms), Commit)

	p = started(time.Second, 3)
	wantAction(t, p.Ended(ms, NonFatal, Pushback{}), AttemptNow)
	wantAction(t, p.Refused(), Commit)

	// It waits for a token when the last running attempt fails.
	p = started(10*ms, 3)
	wantAction(t, p.Waiting(10*ms), Await)
	wantAction(t, p.Ended(12*ms, NonFatal, Pushback{}), Commit)
	if p.Waits() {
		t.Error("the call is over and still waits for a token")
	}

	// A refused hedge waits for what still runs.
	p = started(10*ms, 3)
	wantAction(t, p.Refused(), Await)
	wantNoNext(t, &p)
	wantAction(t, p.Ended(12*ms, NonFatal, Pushback{}), Commit)
}

// A reply that the caller would rather not have does not win while another
// attempt may do better; when all are such, the last one is the call's.
func TestPlanNotAcceptable(t *testing.T) {
	for _, bad := range []Verdict{NonFatal, NotAcceptable} {
		p := started(10*ms, 2)
		p.Started(10 * ms)
		wantAction(t, p.Ended(11*ms, bad, Pushback{}), Await)
		wantAction(t, p.Ended(30*ms, Acceptable, Pushback{}), Commit)

		p = started(10*ms, 2)
		wantAction(t, p.Ended(ms, bad, Pushback{}), AttemptNow)
		p.Started(ms)
		wantAction(t, p.Ended(30*ms, NotAcceptable, Pushback{}), Commit)
	}
}

// A server that says "do not retry" stops the hedges that are pending too; what
// it says in an unreadable way means the same.
func TestPlanPushbackStops(t *testing.T) {
	for _, values := range [][]string{{"-1"}, {"abc"}, {""}, {"200", "200"}, {"007"}, {"+5"}, {"2147483648"}} {
		push := ParsePushback(values)
		p := started(10*ms, 4)
		p.Started(10 * ms)
		wantAction(t, p.Waiting(20*ms), Await)
		wantAction(t, p.Ended(21*ms, NonFatal, push), Await)
		wantNoNext(t, &p)
		if p.Waits() {
			t.Errorf("%q: a hedge still waits for a token", values)
		}
		wantAction(t, p.Ended(25*ms, NonFatal, Pushback{}), Commit)
	}
}

func TestPlanPushbackDelays(t *testing.T) {
	push := ParsePushback([]string{"200"})
	p := started(10*ms, 4)
	p.Started(10 * ms)
	wantAction(t, p.Ended(15*ms, NonFatal, push), Await)
	wantNext(t, &p, 215*ms)
	wantAction(t, p.Ended(16*ms, NonFatal, Pushback{}), Await) // nothing runs, and it is not over
	wantNext(t, &p, 215*ms)
	p.Started(215 * ms)
	wantNext(t, &p, 225*ms)

	p = started(10*ms, 3)
	wantAction(t, p.Ended(5*ms, NonFatal, ParsePushback([]string{"0"})), Await)
	wantNext(t, &p, 5*ms)
}

// After a non-fatal failure the next attempt does not wait out its delay; a
// fatal one ends the call.
func TestPlanAfterFailure(t *testing.T) {
	p := started(time.Second, 4)
	wantAction(t, p.Ended(5*ms, NonFatal, Pushback{}), AttemptNow)
	wantNext(t, &p, 5*ms)
	p.Started(5 * ms)
	wantNext(t, &p, 1005*ms)
	p.Started(1005 * ms)
	wantAction(t, p.Ended(1010*ms, Fatal, Pushback{}), Commit)
	wantNoNext(t, &p)
	wantAction(t, p.Ended(1011*ms, NonFatal, Pushback{}), Await)
}

// A hedge that waits for a token is promoted after each further delay.
func TestPlanWaits(t *testing.T) {
	p := started(10*ms, 3)
	p.Waiting(11 * ms)
	for i := range Levels {
		wantNext(t, &p, time.Duration(21+10*i)*ms)
		wantAction(t, p.Waiting(time.Duration(21+10*i)*ms), Await)
	}
	wantNoNext(t, &p)
	if !p.Waits() {
		t.Error("it does not wait any more")
	}
	p.Started(150 * ms)
	wantNext(t, &p, 160*ms)
	if !p.Late() || p.Waits() {
		t.Errorf("Late %v, Waits %v, want the third attempt to be late", p.Late(), p.Waits())
	}
}

// Whatever happens, a call that is not over has something to wait for, and no
// more attempts than it may.
func TestPlanAlwaysEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 8).Draw(t, "max attempts")
		p := started(10*ms, most)
		now := time.Duration(0)
		action := Await
		for step := 0; action != Commit; step++ {
			at, due := p.Next()
			if action == AttemptNow && (!due || at > now) {
				t.Fatalf("AttemptNow at %v, but Next = %v, %v", now, at, due)
			}
			if p.Running() == 0 && !due {
				t.Fatal("nothing runs, nothing is due, and the call is not over")
			}
			if p.Running() == 0 && p.Waits() {
				t.Fatal("nothing runs and the call waits for the budget")
			}
			if step > 200 {
				return // promoted for ever while an attempt runs
			}
			if due && (p.Running() == 0 || action == AttemptNow || rapid.Bool().Draw(t, "time passes")) {
				now = max(now, at)
				action = Await
				switch rapid.IntRange(0, 3).Draw(t, "may it go") {
				case 0:
					p.Started(now)
				case 1:
					action = p.Waiting(now)
				case 2:
					action = p.Postponed(now)
				case 3:
					action = p.Refused()
				}
			} else {
				now += ms
				push := rapid.SampledFrom([]Pushback{{}, {}, ParsePushback([]string{"30"}), ParsePushback([]string{"-1"})}).Draw(t, "pushback")
				action = p.Ended(now, rapid.SampledFrom([]Verdict{NonFatal, NotAcceptable, Acceptable, Fatal}).Draw(t, "verdict"), push)
			}
			if p.Attempts() > max(1, min(most, policy.MaxAttempts)) {
				t.Fatalf("%d attempts, want at most %d", p.Attempts(), most)
			}
		}
		if at, ok := p.Next(); ok {
			t.Fatalf("the call is over and an attempt is due at %v", at)
		}
	})
}

func FuzzParsePushback(f *testing.F) {
	for _, s := range []string{"0", "200", "-1", "", "abc", "007", "+5", " 5", "2147483647", "2147483648", "9999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := ParsePushback([]string{s})
		if !p.present || p.delay < 0 || p.stop && p.delay != 0 {
			t.Errorf("%q: %+v", s, p)
		}
	})
}

func BenchmarkPlan(b *testing.B) {
	m := policy.Method{Delay: 10 * ms, Probability: 1, MaxAttempts: 3}
	b.ReportAllocs()
	for b.Loop() {
		p := NewPlan(&m)
		p.Started(0)
		p.Next()
		p.Ended(5*ms, Acceptable, Pushback{})
	}
}

// A wish that is told in another way than by gRPC's trailer is the same wish.
func TestPushbackToldOtherwise(t *testing.T) {
	if got, want := PushbackAfter(20*time.Millisecond), ParsePushback([]string{"20"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := PushbackStop(), ParsePushback([]string{"-1"}); got != want || !got.Stops() {
		t.Errorf("got %+v, want %+v, which stops", got, want)
	}
}

// A hedge that has nowhere to go is due again after another delay, but a call
// whose attempts have all failed does not wait for a replica to come.
func TestPlanPostponed(t *testing.T) {
	p := started(10*ms, 3)
	wantAction(t, p.Postponed(10*ms), Await)
	wantNext(t, &p, 20*ms)
	wantAction(t, p.Waiting(20*ms), Await) // for a token, which comes too late
	wantAction(t, p.Postponed(25*ms), Await)
	wantNext(t, &p, 35*ms)
	if p.Waits() {
		t.Error("it waits for a token and has nowhere to go")
	}
	p.Started(35 * ms)
	wantNext(t, &p, 45*ms)

	p = started(10*ms, 3)
	wantAction(t, p.Ended(5*ms, NonFatal, Pushback{}), AttemptNow)
	wantAction(t, p.Postponed(5*ms), Commit)
	wantNoNext(t, &p)
}
