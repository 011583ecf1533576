package hedgectl

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/cli"
)

func (o *options) explain() *cobra.Command {
	return &cobra.Command{
		Use:   "explain SERVICE [METHOD]",
		Short: "Tell why a policy is as it is",
		Long: `explain shows the guards in the order in which the controller asks them, each
with its numbers, the one that decided, and the latest changes.`,
		Example: `  hedgectl explain users
  hedgectl explain users /hedged.demo.v1.UserService/GetUser`,
		Args: cli.Args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.ask(cmd.Context(), func(ctx context.Context, admin hedgedv1.AdminServiceClient) error {
				r, err := admin.Explain(ctx, &hedgedv1.ExplainRequest{Service: args[0], Method: first(args[1:])})
				if err != nil {
					return err
				}
				return o.print(r, func(w io.Writer) { writeExplanation(w, r, first(args[1:])) })
			})
		},
	}
}

func writeExplanation(w io.Writer, r *hedgedv1.ExplainResponse, about string) {
	s := r.GetService()
	fmt.Fprintf(w, "%s is %s: %s\n", s.GetName(), modeName(s.GetPolicy().GetMode()), decided(r))
	if o := s.GetOverride(); o != nil {
		fmt.Fprintf(w, "An operator's word: %s\n", said(o))
	}
	writeLoad(w, s)
	for _, m := range s.GetMethods() {
		if text := m.GetCounterfactual().GetText(); text != "" && (about == "" || m.GetMethod() == about) {
			fmt.Fprintf(w, "%s: %s.\n", m.GetMethod(), text)
		}
	}
	b := s.GetPolicy().GetBudget()
	fmt.Fprintf(w, "Budget of each client: %.3g hedges per call, burst %.3g, %.3g to start with. Generation %s.\n\n",
		b.GetRatio(), b.GetBurst(), b.GetStart(), generation(s.GetPolicy().GetGeneration(), 0))

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "GUARD\tDECIDED\tABOUT\tWHAT IT SAW")
	for _, g := range r.GetGuards() {
		decided, about := "", "service"
		if g.GetDecided() {
			decided = "yes"
		}
		if g.GetMethod() != "" {
			about = g.GetMethod()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", codeName(g.GetCode()), decided, about, g.GetText())
	}
	t.Flush()

	if len(r.GetChanges()) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHANGED\tGENERATION\tABOUT\tDELAY\tWHY")
	for _, c := range r.GetChanges() {
		about, moved := "service: "+modeName(c.GetMode()), ""
		if c.GetMethod() != "" {
			about = c.GetMethod()
			moved = delay(c.GetDelayBefore()) + " to " + delay(c.GetDelayAfter())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.GetAt().AsTime().Local().Format(time.TimeOnly),
			generation(c.GetGeneration(), s.GetPolicy().GetGeneration().GetEpoch()), about, moved, c.GetReason())
	}
	t.Flush()
}

// decided is what the service's deciding guard saw just now; the policy's own
// reason has the numbers of when it was pushed.
func decided(r *hedgedv1.ExplainResponse) string {
	for _, g := range r.GetGuards() {
		if g.GetDecided() && g.GetMethod() == "" {
			return g.GetText()
		}
	}
	return r.GetService().GetPolicy().GetReason().GetText()
}

// writeLoad tells what became of the calls that might have been hedged.
func writeLoad(w io.Writer, s *hedgedv1.ServiceStatus) {
	l := s.GetLoad()
	window := l.GetWindow().AsDuration()
	if l.GetCalls() == 0 {
		fmt.Fprintf(w, "No calls in the last %v; the target is %s.\n", window, percent(&s.Target))
		return
	}
	fmt.Fprintf(w, "Extra load %s of %s in the last %v: of %d calls %d may be hedged and %d outlived the delay; %d hedges, %d won.\n",
		percent(l.ExtraLoad), percent(&s.Target), window, l.GetCalls(), l.GetSafe(), l.GetEligible(), l.GetHedges(), l.GetWins())
	if l.GetServerAttempts() > 0 {
		fmt.Fprintf(w, "Servers counted %d hedges among %d attempts, and %d attempts cancelled.\n",
			l.GetServerHedges(), l.GetServerAttempts(), l.GetServerCancelled())
	}
	if len(l.GetSuppressed()) > 0 {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(l.GetSuppressed())) {
			parts = append(parts, fmt.Sprintf("%s %d", name, l.GetSuppressed()[name]))
		}
		fmt.Fprintf(w, "Outlived it and not hedged, by reason: %s.\n", strings.Join(parts, ", "))
	}
}

func codeName(c hedgedv1.ReasonCode) string {
	return strings.ToLower(strings.TrimPrefix(c.String(), "REASON_CODE_"))
}
