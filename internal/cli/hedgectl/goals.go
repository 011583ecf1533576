package hedgectl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/sim/goals"
)

// goalsAsked is what a command asks for about goals.
type goalsAsked struct{ on, quick, oracle bool }

func (g *goalsAsked) flags(f *pflag.FlagSet) {
	f.BoolVar(&g.on, "goals", false, "measure what hedged promises with its defaults: all of it, or the goals named; exit code 1 if one is missed")
	f.BoolVar(&g.quick, "quick", false, "with --goals: fewer seeds and shorter worlds, done within a minute")
	f.BoolVar(&g.oracle, "oracle", false, "with --goals: look for the best fixed delays anew and print the table of them that --quick uses")
}

// check names flags that do not go together.
func (g *goalsAsked) check(cmd *cobra.Command) error {
	if !g.on {
		for _, name := range []string{"quick", "oracle"} {
			if cmd.Flags().Changed(name) {
				return cli.Usagef("--%s: goes with --goals only", name)
			}
		}
		return nil
	}
	for _, name := range []string{"seeds", "compare", "list", "show", "plot"} {
		if cmd.Flags().Changed(name) {
			return cli.Usagef("--%s: does not go with --goals, which has its own", name)
		}
	}
	if g.quick && g.oracle {
		return cli.Usagef("--oracle: does not go with --quick, which uses what it prints")
	}
	return nil
}

func (o *options) measureGoals(ctx context.Context, s *simulation, ids []string) error {
	asked, err := goals.Find(ids)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	bar := o.bar(s)
	defer bar.clear()
	if s.goals.oracle {
		text, err := goals.WriteOracles(ctx, asked, s.base, bar.show)
		if err != nil {
			return err
		}
		bar.clear()
		_, err = fmt.Fprint(o.out, text)
		return err
	}
	results, err := goals.Run(ctx, asked, goals.Options{Quick: s.goals.quick, Base: s.base, Progress: bar.show})
	if err != nil {
		return err
	}
	bar.clear()
	if o.output == "json" {
		e := json.NewEncoder(o.out)
		e.SetEscapeHTML(false)
		if err := e.Encode(results); err != nil {
			return err
		}
	} else if err := writeGoals(o.out, results); err != nil {
		return err
	}
	return missed(results)
}

// missed is an error that names the goals that were missed; nil: none.
func missed(results []goals.Result) error {
	var ids []string
	for _, r := range results {
		if !r.Pass {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %s missed: %s", len(ids), plural(len(results), "goal"), strings.Join(ids, ", "))
}

// writeGoals shows each goal, and each of its checks below it.
func writeGoals(w io.Writer, results []goals.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, r := range results {
		if i > 0 {
			fmt.Fprintln(t)
		}
		verdict := "pass"
		if !r.Pass {
			verdict = "MISSED"
		}
		fmt.Fprintf(t, "%s: %s. %s, %s, %d calls\n", r.ID, verdict, r.Goal, plural(r.Seeds, "seed"), r.Calls)
		if len(r.Checks) == 0 {
			fmt.Fprintf(t, "  %s\n", r.Measured)
		}
		for _, c := range r.Checks {
			mark := "ok"
			if !c.Pass {
				mark = "MISSED"
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\tsd %.3g\t%s\n", c.Name, c.Text(), c.Goal, c.SD, mark)
		}
	}
	return t.Flush()
}
