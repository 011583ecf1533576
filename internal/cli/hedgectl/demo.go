package hedgectl

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/internal/demo"
)

// Bounds of the demonstration, so that it fits on one machine.
const (
	maxInFlight = 2000
	maxCalls    = 1_000_000
	maxRuns     = 1000
)

func (o *options) demo() *cobra.Command {
	d := demo.Options{InFlight: []int{4, 40}, Calls: 4000, Runs: 1, Target: 0.05, Seed: 1}
	scenes, quiet := "all", false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See hedging work, on this machine, with nothing installed",
		Long: `demo starts a daemon, three gRPC replicas on loopback that answer in 5 to 15 ms
and stall for a second on one call in 100, and clients that hedge by what the
daemon tells them. It makes plain calls while the daemon learns, then hedged
ones, and shows both side by side; then it plays scenes of what goes wrong in
the field:

  kill-switch     200 clients hedge; how long until off has stopped the last one
  daemon-restart  the daemon is killed under load and comes back
  slow-replica    one replica becomes three times slower, then recovers
  drift           latencies grow by half, then something takes the CPU
  step            all latencies triple, and fall back
  shared          what stalls does on every replica, so hedges rescue nothing
  failing         a third of all attempts fails
  fanout          requests that wait for a hundred calls, plain and hedged

Nothing is left behind. It takes about four minutes.`,
		Example: `  hedgectl demo
  hedgectl demo --in-flight 4,40,400 --runs 10 --scenes none
  hedgectl demo --runs 5 --simulate --scenes none
  hedgectl demo --scenes kill-switch -o json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDemo(&d, scenes); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the daemon's binary: %w", err)
			}
			d.Daemon, d.Burner = []string{self, "daemon"}, []string{self, "burn"}
			var bar *progress
			if f, ok := o.err.(*os.File); !quiet && ok && term.IsTerminal(int(f.Fd())) {
				bar = &progress{w: f}
				d.Progress = bar.show
			}
			r, err := demo.Play(cmd.Context(), d)
			bar.clear()
			switch {
			case o.output == "table" && r != nil:
				writeDemo(o.out, r) // also what came before an error
			case err == nil:
				err = json.NewEncoder(o.out).Encode(r)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&d.InFlight, "in-flight", d.InFlight, fmt.Sprintf("calls in flight, a `LIST` of settings, each 1 to %d", maxInFlight))
	f.IntVar(&d.Calls, "calls", d.Calls, fmt.Sprintf("calls of each run, 0 to %d; 0: only the scenes", maxCalls))
	f.IntVar(&d.Runs, "runs", d.Runs, fmt.Sprintf("runs of each setting, 1 to %d", maxRuns))
	f.Float64Var(&d.Target, "target", d.Target, fmt.Sprintf("most extra load, as a `RATIO` of calls, %g to %g", control.MinTarget, control.MaxTarget))
	f.Uint64Var(&d.Seed, "seed", d.Seed, "`NUMBER` that the replicas' latencies follow from, 0 or more")
	f.BoolVar(&d.Cold, "cold", false, "no plain run first: the daemon knows nothing when hedging is switched on")
	f.StringVar(&scenes, "scenes", scenes, "all, none, or a `LIST` of "+strings.Join(demo.Scenes(), ","))
	f.BoolVar(&d.Simulate, "simulate", false, "show what the simulator makes of the hedged runs beside them")
	f.BoolVar(&quiet, "no-progress", false, "no progress bar")
	return cmd
}

// checkDemo names the first flag that is out of bounds, with its value and the bound.
func checkDemo(d *demo.Options, scenes string) error {
	if len(d.InFlight) == 0 {
		return cli.Usagef("--in-flight: is empty, want at least one number")
	}
	for _, k := range d.InFlight {
		if k < 1 || k > maxInFlight {
			return cli.Usagef("--in-flight: %d, want 1 to %d", k, maxInFlight)
		}
	}
	if d.Calls < 0 || d.Calls > maxCalls {
		return cli.Usagef("--calls: %d, want 0 to %d", d.Calls, maxCalls)
	}
	if d.Runs < 1 || d.Runs > maxRuns {
		return cli.Usagef("--runs: %d, want 1 to %d", d.Runs, maxRuns)
	}
	if !(d.Target >= control.MinTarget && d.Target <= control.MaxTarget) {
		return cli.Usagef("--target: %g, want %g to %g", d.Target, control.MinTarget, control.MaxTarget)
	}
	switch scenes {
	case "all":
		d.Scenes = demo.Scenes()
	case "none":
		d.Scenes = nil
	default:
		d.Scenes = strings.Split(scenes, ",")
		for _, s := range d.Scenes {
			if !slices.Contains(demo.Scenes(), s) {
				return cli.Usagef("--scenes: %q is unknown, want all, none, or some of %s", s, strings.Join(demo.Scenes(), ","))
			}
		}
	}
	return nil
}

// progress is a bar on a terminal.
type progress struct {
	w io.Writer

	mu    sync.Mutex
	shown time.Time
}

func (p *progress) show(what string, done float64) {
	if p == nil {
		return
	}
	const width = 30
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	n := int(math.Round(width * min(max(done, 0), 1)))
	fmt.Fprintf(p.w, "\r\x1b[K[%s%s] %s", strings.Repeat("=", n), strings.Repeat(" ", width-n), what)
}

// clear removes the bar. A nil progress has none.
func (p *progress) clear() {
	if p != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// article is what the article measured, by calls in flight.
var article = map[int]map[string]string{
	4: {
		"plain":  "25.5\t1015.6\t38\t-",
		"hedged": "25.0\t33.1\t0\t3.5%",
	},
	40: {
		"plain":  "34.6\t1015.9\t38\t-",
		"hedged": "36.5\t47.5\t0\t6.7%, once 17.6%",
	},
}

func writeDemo(w io.Writer, r *demo.Result) {
	if len(r.Runs) > 0 {
		writeRuns(w, r.Runs)
		writeMoves(w, r.Runs)
	}
	if len(r.Simulated) > 0 {
		writeSimulated(w, r.Simulated)
	}
	for i, s := range r.Scenes {
		if i > 0 || len(r.Runs) > 0 {
			fmt.Fprintln(w)
		}
		writeScene(w, s)
	}
}

func writeRuns(w io.Writer, runs []demo.Run) {
	fmt.Fprintf(w, "Three replicas that answer in 5 to 15 ms and stall for 1 s on one call in 100;\n")
	fmt.Fprintf(w, "runs of %d calls, at most %g%% extra load. Latencies in ms. Extra load as the\n", runs[0].Calls, 100*runs[0].Target)
	fmt.Fprintf(w, "client and as the servers counted it; attempts that the servers saw cancelled;\n")
	fmt.Fprintf(w, "the best p99.9 that the target allows on these latencies.\n\n")
	failed := slices.ContainsFunc(runs, func(r demo.Run) bool { return r.Errors > 0 })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	header := "in flight\trun\tpolicy\tp99\tp99.9\t>1s\textra\tservers\tcancelled\tdelay\tbest\t"
	if failed {
		header += "failed\t"
	}
	fmt.Fprintln(t, header)
	for _, r := range runs {
		fmt.Fprintf(t, "%d\t%d\t%s\t%.1f\t%.1f\t%d\t%.2f%%\t%.2f%%\t%d\t%s\t%s\t",
			r.InFlight, r.Run, r.Policy, r.P99, r.P999, r.Over1s,
			100*r.ExtraClient, 100*r.ExtraServer, r.CancelledServer, optional(r.Delay), optional(r.Optimum))
		if failed {
			fmt.Fprintf(t, "%d\t", r.Errors)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	writeSummary(w, runs)
	writeArticle(w, t, runs)
}

// writeSummary says what hedging changed, for each setting that has both kinds
// of run.
func writeSummary(w io.Writer, runs []demo.Run) {
	type tail struct{ p999, extra []float64 }
	tails := map[int]map[string]*tail{}
	var settings []int
	for _, r := range runs {
		if tails[r.InFlight] == nil {
			tails[r.InFlight] = map[string]*tail{"plain": {}, "hedged": {}}
			settings = append(settings, r.InFlight)
		}
		of := tails[r.InFlight][r.Policy]
		of.p999, of.extra = append(of.p999, r.P999), append(of.extra, r.ExtraClient)
	}
	for i, k := range settings {
		plain, hedged := tails[k]["plain"], tails[k]["hedged"]
		if len(plain.p999) > 0 && len(hedged.p999) > 0 {
			if i == 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "%d in flight: p99.9 from %.0f to %.0f ms, for %.1f%% extra load.\n",
				k, median(plain.p999), median(hedged.p999), 100*median(hedged.extra))
		}
	}
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

// writeArticle shows what the article measured at the same settings.
func writeArticle(w io.Writer, t *tabwriter.Writer, runs []demo.Run) {
	shown := map[int]bool{}
	for _, r := range runs {
		rows, ok := article[r.InFlight]
		if !ok || shown[r.InFlight] {
			continue
		}
		if len(shown) == 0 {
			fmt.Fprintln(w, "\nThe article, with a delay fixed at the p95 that it had measured before (Python, one machine):")
			fmt.Fprintln(t, "in flight\tpolicy\tp99\tp99.9\t>1s\textra\t")
		}
		shown[r.InFlight] = true
		fmt.Fprintf(t, "%d\tplain\t%s\t\n%d\thedged\t%s\t\n", r.InFlight, rows["plain"], r.InFlight, rows["hedged"])
	}
	t.Flush()
}

// writeSimulated shows real runs and the simulator's in one table.
func writeSimulated(w io.Writer, all []demo.Simulated) {
	fmt.Fprintln(w, "\nHedged runs beside the simulator's, medians:")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "in flight\truns\textra\tsimulated\tp99.9\tsimulated\tratio\t")
	for _, s := range all {
		fmt.Fprintf(t, "%d\t%d\t%.2f%%\t%.2f%%\t%.1f\t%.1f\t%.2f\t\n",
			s.InFlight, s.Runs, 100*s.Extra, 100*s.SimExtra, s.P999, s.SimP999, s.P999Ratio)
	}
	t.Flush()
}

func optional(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *x)
}

// writeMoves shows how the delay moved in hedged runs.
func writeMoves(w io.Writer, runs []demo.Run) {
	fmt.Fprintln(w, "\nHow the delay moved at the hedging clients:")
	for _, r := range runs {
		if r.Policy != "hedged" {
			continue
		}
		fmt.Fprintf(w, "  %d in flight, run %d:", r.InFlight, r.Run)
		if len(r.Moves) == 0 {
			fmt.Fprint(w, " no delay")
		}
		const shown = 8
		for i, m := range r.Moves {
			if i == shown {
				fmt.Fprintf(w, ", and %d more", len(r.Moves)-shown)
				break
			}
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, " %.1f ms at %.2f s", m.Delay, m.At/1000)
		}
		fmt.Fprintln(w)
	}
}

func writeScene(w io.Writer, s demo.Scene) {
	fmt.Fprintf(w, "%s\n", s.Name)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range s.Figures {
		name, value := readable(f)
		fmt.Fprintf(t, "  %s\t%s\n", name, value)
	}
	t.Flush()
}

// readable puts the unit, with which a figure's name ends, behind its value.
func readable(f demo.Figure) (name, value string) {
	name, value = f.Name, fmt.Sprintf("%.4g", f.Value)
	if f.Value == math.Trunc(f.Value) {
		value = fmt.Sprintf("%.0f", f.Value)
	}
	if n, found := strings.CutSuffix(name, "_ratio"); found {
		name, value = n, fmt.Sprintf("%.2f%%", 100*f.Value)
	}
	for _, unit := range []string{"per_s", "ms", "s"} {
		if n, found := strings.CutSuffix(f.Name, "_"+unit); found {
			name, value = n, value+" "+strings.ReplaceAll(unit, "_", " ")
			break
		}
	}
	return strings.ReplaceAll(name, "_", " "), value
}
