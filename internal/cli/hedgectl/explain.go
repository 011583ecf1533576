package hedgectl

import (
	"context"
	"fmt"
	"io"
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
				return o.print(r, func(w io.Writer) { writeExplanation(w, r) })
			})
		},
	}
}

func writeExplanation(w io.Writer, r *hedgedv1.ExplainResponse) {
	s := r.GetService()
	fmt.Fprintf(w, "%s is %s: %s\n", s.GetName(), modeName(s.GetPolicy().GetMode()), s.GetPolicy().GetReason().GetText())
	fmt.Fprintf(w, "Extra load %s of %s in the last %v; generation %s.\n", percent(s.GetLoad().ExtraLoad), percent(&s.Target),
		s.GetLoad().GetWindow().AsDuration(), generation(s.GetPolicy().GetGeneration()))
	b := s.GetPolicy().GetBudget()
	fmt.Fprintf(w, "Budget of each client: %.3g hedges per call, burst %.3g, %.3g to start with.\n\n", b.GetRatio(), b.GetBurst(), b.GetStart())

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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.GetAt().AsTime().Local().Format(time.TimeOnly), generation(c.GetGeneration()), about, moved, c.GetReason())
	}
	t.Flush()
}

func codeName(c hedgedv1.ReasonCode) string {
	return strings.ToLower(strings.TrimPrefix(c.String(), "REASON_CODE_"))
}
