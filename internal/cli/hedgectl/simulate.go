package hedgectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/sim"
	"github.com/hedged-project/hedged/sim/goals"
)

const (
	maxSeeds = 1000
	// maxLatencyFile bounds a file of measured latencies, in bytes.
	maxLatencyFile = 64 << 20
)

// simulation is what one command asks for.
type simulation struct {
	seeds    int
	base     uint64
	compare  string
	list     bool
	show     string
	quiet    bool
	plot     string
	trace    string
	goals    goalsAsked
	policies []sim.Policy
	oracle   bool
}

func (o *options) simulate() *cobra.Command {
	s := &simulation{seeds: 12, base: 1, compare: "none,hedged"}
	cmd := &cobra.Command{
		Use:   "simulate NAME|FILE...|--goals [ID...]|--trace FILE",
		Short: "Try hedging in a simulated world, beside what others do",
		Long: `simulate runs scenarios in virtual time, with the controller and the client's law as
they run in production, and shows medians over the seeds with the least and the
most. The same seed gives the same figures, on however many CPUs. A scenario is the name
of one that comes with the program (--list, --show), or a text file, such as

  duration 120s
  clients  20
  arrivals poisson 1000
  latency  lognormal 10ms 0.5
  stall    call 1% 500ms
  replicas 3
  at 60s   slowdown 3

With --trace it works out instead what hedging would have bought, at which budget,
for calls that were measured without it: one latency a line, such as 12.5ms, or
arrival,replica,latency, such as 1.5s,replica-7,12.5ms, which shows too what
better routing would have bought, and slowness that no copy rescues.

With --goals it measures what hedged promises with its defaults, and fails where
that is missed: all goals, or some of

  ` + goalList() + `

Policies:

` + policyList() + `
Scenarios:

` + sim.Format,
		Example: `  hedgectl simulate --list
  hedgectl simulate queue
  hedgectl simulate step fleet --compare none,finagle,hedged --seeds 4
  hedgectl simulate my-service.txt --compare all -o json
  hedgectl simulate step --compare none,finagle,hedged --plot step.svg
  hedgectl simulate --trace calls.csv
  hedgectl simulate --goals --quick`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("trace") {
				if err := checkTrace(cmd, args); err != nil {
					return err
				}
				return o.estimateTrace(s.trace)
			}
			if err := s.goals.check(cmd); err != nil {
				return err
			}
			if s.goals.on {
				return o.measureGoals(cmd.Context(), s, args)
			}
			if s.list {
				if len(args) > 0 {
					return cli.Usagef("--list takes no scenario, but got %q", args[0])
				}
				return o.listScenarios()
			}
			if s.show != "" {
				if len(args) > 0 {
					return cli.Usagef("--show takes no other scenario, but got %q", args[0])
				}
				sc, err := loadScenario(s.show)
				if err != nil {
					return &cli.UsageError{Err: err}
				}
				_, err = fmt.Fprint(o.out, sc.Text)
				return err
			}
			if err := s.check(cmd, args); err != nil {
				return err
			}
			scenarios := make([]*sim.Scenario, len(args))
			for i, name := range args {
				var err error
				if scenarios[i], err = loadScenario(name); err != nil {
					return &cli.UsageError{Err: err}
				}
			}
			return o.playScenarios(cmd.Context(), s, scenarios)
		},
	}
	f := cmd.Flags()
	f.IntVar(&s.seeds, "seeds", s.seeds, fmt.Sprintf("runs of each policy, 1 to %d, each with a seed of its own", maxSeeds))
	f.Uint64Var(&s.base, "seed-base", s.base, "`NUMBER` of the first seed, 0 or more")
	f.StringVar(&s.compare, "compare", s.compare, "all, or a `LIST` of "+strings.Join(sim.PolicyNames(), ","))
	f.BoolVar(&s.list, "list", false, "show the scenarios that come with the program")
	f.StringVar(&s.show, "show", "", "print the text of the scenario `NAME`, to start one's own from")
	f.StringVar(&s.trace, "trace", "", "say what hedging would have bought for the calls in the `FILE`, which were measured without")
	s.goals.flags(f)
	f.StringVar(&s.plot, "plot", "", "draw delay, extra load and p99.9 over time into the `FILE`, as SVG")
	f.BoolVar(&s.quiet, "no-progress", false, "no progress bar")
	return cmd
}

// goalList is the ids of all goals, in lines.
func goalList() string {
	var ids []string
	for _, g := range goals.All() {
		ids = append(ids, g.ID)
	}
	const perLine = 8
	var lines []string
	for line := range slices.Chunk(ids, perLine) {
		lines = append(lines, strings.Join(line, ", "))
	}
	return strings.Join(lines, ",\n  ")
}

func policyList() string {
	var b strings.Builder
	for _, p := range sim.Policies() {
		fmt.Fprintf(&b, "  %-14s%s\n", p.Name, p.Text)
	}
	fmt.Fprintf(&b, "  %-14sthe best fixed delay and probability, looked for in some 200 more runs\n", sim.OracleName)
	return b.String()
}

// check names the first flag that is out of bounds, with its value and the bound.
func (s *simulation) check(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usagef("no scenario, want the name of one (--list shows them) or a file")
	}
	if s.seeds < 1 || s.seeds > maxSeeds {
		return cli.Usagef("--seeds: %d, want 1 to %d", s.seeds, maxSeeds)
	}
	if s.plot == "" && cmd.Flags().Changed("plot") {
		return cli.Usagef("--plot: is empty, want a file to write")
	}
	if s.plot != "" && len(args) > 1 {
		return cli.Usagef("--plot: draws one scenario, but got %d", len(args))
	}
	names := strings.Split(s.compare, ",")
	if s.compare == "all" {
		names = sim.PolicyNames()
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return cli.Usagef("--compare: %q is there twice", name)
		}
		if name == sim.OracleName {
			s.oracle = true
			continue
		}
		p, err := sim.FindPolicy(name)
		if err != nil {
			return cli.Usagef("--compare: %v", err)
		}
		s.policies = append(s.policies, p)
	}
	return nil
}

// loadScenario reads a file if there is one of that name, or if it looks like one.
func loadScenario(name string) (*sim.Scenario, error) {
	if !strings.ContainsAny(name, `/.\`) {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return sim.Shipped(name)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return sim.Parse(name, string(text), func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(name), path)
		}
		info, err := os.Stat(path)
		if err == nil && info.Size() > maxLatencyFile {
			err = fmt.Errorf("%s: is %d bytes long, want at most %d", path, info.Size(), maxLatencyFile)
		}
		if err != nil {
			return nil, err
		}
		return os.ReadFile(path)
	})
}

func (o *options) listScenarios() error {
	type entry struct {
		Name  string `json:"name"`
		Title string `json:"title"`
	}
	var list []entry
	for _, name := range sim.Names() {
		s, err := sim.Shipped(name)
		if err != nil {
			return err
		}
		list = append(list, entry{name, s.Title})
	}
	if o.output == "json" {
		return json.NewEncoder(o.out).Encode(list)
	}
	t := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	for _, e := range list {
		fmt.Fprintf(t, "%s\t%s\n", e.Name, e.Title)
	}
	return t.Flush()
}

// played is one scenario's outcome, as JSON shows it. Times are in ms, shares in
// parts of one.
type played struct {
	Scenario string         `json:"scenario"`
	Title    string         `json:"title"`
	Target   float64        `json:"target"`
	Bound    float64        `json:"bound"`
	Seeds    int            `json:"seeds"`
	SeedBase uint64         `json:"seed_base"`
	Policies []playedPolicy `json:"policies"`
}

type playedPolicy struct {
	Policy     string  `json:"policy"`
	Text       string  `json:"text"`
	Requests   spread  `json:"requests"`
	P50        spread  `json:"p50"`
	P99        spread  `json:"p99"`
	P999       spread  `json:"p999"`
	PooledP999 float64 `json:"pooled_p999"`
	Extra      spread  `json:"extra"`
	Worst10s   spread  `json:"worst_10s_extra"`
	Over       spread  `json:"over_bound"`
	Failed     spread  `json:"failed"`
	Probation  spread  `json:"replicas_out_of_service"`
	Busy       *spread `json:"busy,omitempty"` // of workers; absent where they have no limit
}

type spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	SD     float64 `json:"sd"`
}

func (o *options) playScenarios(ctx context.Context, s *simulation, scenarios []*sim.Scenario) error {
	bar := o.bar(s)
	defer bar.clear()
	pool := sim.NewPool()
	var all []played
	for i, sc := range scenarios {
		policies := slices.Clone(s.policies)
		if s.oracle {
			bar.show(sc.Name+": looking for the oracle", 0)
			oracle, err := sim.FindOracle(ctx, pool, sc)
			if err != nil {
				return err
			}
			policies = append(policies, oracle.Policy())
		}
		var done atomic.Int64
		rows, err := sim.Compare(ctx, pool, sc, policies, s.seeds, s.base, func() {
			bar.show(sc.Name, float64(done.Add(1))/float64(len(policies)*s.seeds))
		})
		if err != nil {
			return err
		}
		p := outcome(s, sc, rows)
		all = append(all, p)
		if o.output != "json" {
			bar.clear()
			if i > 0 {
				fmt.Fprintln(o.out)
			}
			writePlayed(o.out, &p)
			fmt.Fprintln(o.out)
			if err := drawing(sc, rows).Text(o.out, textColumns); err != nil {
				return err
			}
		}
		if s.plot != "" {
			if err := draw(s.plot, drawing(sc, rows)); err != nil {
				return err
			}
		}
	}
	if o.output == "json" {
		return json.NewEncoder(o.out).Encode(all)
	}
	return nil
}

// bar returns a progress bar where there is somebody to see it.
func (o *options) bar(s *simulation) *progress {
	if f, ok := o.err.(*os.File); !s.quiet && ok && term.IsTerminal(int(f.Fd())) {
		return &progress{w: f}
	}
	return nil
}

func outcome(s *simulation, sc *sim.Scenario, rows []sim.Row) played {
	out := played{
		Scenario: sc.Name, Title: sc.Title, Target: sc.Target(), Bound: sim.Millis(sc.Bound()),
		Seeds: s.seeds, SeedBase: s.base,
	}
	for i := range rows {
		row := &rows[i]
		of := func(figure func(*sim.Result) float64) spread { return spread(row.Spread(figure)) }
		p := playedPolicy{
			Policy:     row.Policy.Name,
			Text:       row.Policy.Text,
			Requests:   of(func(r *sim.Result) float64 { return float64(r.Requests) }),
			P50:        of(func(r *sim.Result) float64 { return sim.Millis(r.P50) }),
			P99:        of(func(r *sim.Result) float64 { return sim.Millis(r.P99) }),
			P999:       of(func(r *sim.Result) float64 { return sim.Millis(r.P999) }),
			PooledP999: sim.Millis(row.Pooled(.999)),
			Extra:      of((*sim.Result).Extra),
			Worst10s:   of(func(r *sim.Result) float64 { return r.Worst }),
			Over:       of(func(r *sim.Result) float64 { return float64(r.Over) }),
			Failed:     of(func(r *sim.Result) float64 { return float64(r.Failed) }),
			Probation:  of(func(r *sim.Result) float64 { return r.Unwell }),
		}
		if busy := of(func(r *sim.Result) float64 { return r.Busy }); !math.IsNaN(busy.Median) {
			p.Busy = &busy
		}
		out.Policies = append(out.Policies, p)
	}
	return out
}

func writePlayed(w io.Writer, p *played) {
	fmt.Fprintf(w, "%s: %s\n", p.Scenario, p.Title)
	fmt.Fprintf(w, "%s of %.0f requests; latencies in ms; target %.3g%%; median over seeds, least-most in brackets\n\n",
		plural(p.Seeds, "run"), p.Policies[0].Requests.Median, 100*p.Target)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "policy\tp50\tp99\tp99.9\t\tpooled\textra\tworst 10 s\t\tover %gs\tfailed\tout of service\tbusy\t\n", p.Bound/1000)
	for _, r := range p.Policies {
		busy := "-"
		if r.Busy != nil {
			busy = fmt.Sprintf("%.1f%%", 100*r.Busy.Median)
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t[%.1f-%.1f]\t%.1f\t%.2f%%\t%.2f%%\t[%.2f-%.2f]\t%.0f\t%.0f\t%.2f\t%s\t\n",
			r.Policy, r.P50.Median, r.P99.Median, r.P999.Median, r.P999.Least, r.P999.Most, r.PooledP999,
			100*r.Extra.Median, 100*r.Worst10s.Median, 100*r.Worst10s.Least, 100*r.Worst10s.Most,
			r.Over.Median, r.Failed.Median, r.Probation.Median, busy)
	}
	t.Flush()
	for _, r := range p.Policies {
		if r.Policy == sim.OracleName {
			fmt.Fprintf(w, "oracle: %s\n", r.Text)
		}
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
