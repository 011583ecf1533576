package client

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"text/tabwriter"

	"github.com/hedged-project/hedged/policy"
)

// DebugHandler returns a page in plain text of what Stats knows, for people: is
// there a policy, what is hedged, and what is not and why. It changes nothing, and
// shows names of services, methods and addresses: put it where the process shows
// its other insides, such as beside net/http/pprof.
func (c *Client) DebugHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		// A reader that has left does not want the error.
		_ = c.debug(w)
	})
}

func (c *Client) debug(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "client %s, reports refused %d\n", c.source.ID, c.RefusedReports())
	for _, s := range c.Stats() {
		fmt.Fprintf(t, "\nservice %s: %s\n", s.Key, s.standing())
		if s.RefusedConfig != "" {
			fmt.Fprintln(t, s.RefusedConfig)
		}
		fmt.Fprintln(t, "method\tdelay\tcalls\tmay run twice\teligible\thedges\tunsent\twins\tfailures")
		for _, name := range slices.Sorted(maps.Keys(s.Method)) {
			m := s.Method[name]
			fmt.Fprintf(t, "%s\t%v\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", name, s.Delay[name],
				m.Calls, m.Safe, m.Eligible, m.Hedges, m.CancelledUnsent, m.Wins, m.Failures)
		}
		for reason, n := range s.Suppressed {
			if n > 0 {
				fmt.Fprintf(t, "%d not hedged: %s\n", n, advice[reason])
			}
		}
	}
	return t.Flush()
}

func (s *ServiceStats) standing() string {
	if s.Generation.IsZero() {
		return "no policy: calls are made once, and plainly"
	}
	return fmt.Sprintf("%s by policy %v, %.1f tokens", s.Mode, s.Generation, s.Tokens)
}

// advice says what a suppression means to whoever wonders.
var advice = [policy.NumSuppressions]string{
	policy.SuppressedUnsafe: "unsafe: the call may not run twice, or is too large to keep. " +
		"Declare idempotency_level = NO_SIDE_EFFECTS, list the method in Options.Hedgeable, or send an idempotency key",
	policy.SuppressedMode:        "mode: the policy says shadow or off, or there is none any more",
	policy.SuppressedProbability: "probability: the policy hedges a share of the calls, or pauses",
	policy.SuppressedThrottle:    "throttle: too many calls fail",
	policy.SuppressedBudget:      "budget: no token came before the call ended",
	policy.SuppressedReplica:     "replica: no other one was ready",
	policy.SuppressedPushback:    "pushback: the server asked for no more attempts",
	policy.SuppressedSilence:     "silence: nothing was answered, by no replica",
}
