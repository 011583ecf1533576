package hedgectl

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/sim"
	"github.com/hedged-project/hedged/sim/trace"
)

// traceBudgets are what a trace is asked for, in hedges per call.
var traceBudgets = []float64{.005, .01, .02, .05, .1}

// checkTrace names flags and arguments that do not go with --trace.
func checkTrace(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usagef("--trace: takes no scenario, but got %q", args[0])
	}
	for _, name := range []string{"goals", "quick", "oracle", "seeds", "seed-base", "compare", "list", "show", "plot"} {
		if cmd.Flags().Changed(name) {
			return cli.Usagef("--%s: does not go with --trace", name)
		}
	}
	return nil
}

func (o *options) estimateTrace(name string) error {
	info, err := os.Stat(name)
	if err == nil && info.Size() > trace.MaxBytes {
		err = fmt.Errorf("%s: is %d bytes long, want at most %d", name, info.Size(), trace.MaxBytes)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	var t *trace.Trace
	if err == nil {
		t, err = trace.Parse(name, text)
	}
	if err != nil {
		return cli.Usagef("--trace: %v", err)
	}
	offers := trace.Estimate(t, traceBudgets)
	if o.output == "json" {
		return json.NewEncoder(o.out).Encode(tracedOf(t, offers))
	}
	return writeTrace(o.out, t, offers)
}

// traced is a trace's outcome as JSON shows it. Times are in ms.
type traced struct {
	Trace    string          `json:"trace"`
	Calls    int             `json:"calls"`
	Replicas int             `json:"replicas,omitempty"`
	Seconds  float64         `json:"seconds,omitempty"`
	Together *float64        `json:"slow_together,omitempty"` // against chance
	Routings []tracedRouting `json:"routings"`
}

type tracedRouting struct {
	Routing string        `json:"routing"`
	Offers  []tracedOffer `json:"offers"`
}

type tracedOffer struct {
	Budget      float64    `json:"budget"`
	Extra       float64    `json:"extra"`
	Delay       float64    `json:"delay"`
	Probability float64    `json:"probability"`
	P99         *[]float64 `json:"p99"`  // and where it lies in 95 of 100 resamplings
	P999        *[]float64 `json:"p999"` // null: too few calls to say
}

const (
	asRouted    = "as it was"
	betterOfTwo = "better of two by their last 20 calls"
)

func tracedOf(t *trace.Trace, o *trace.Offers) traced {
	out := traced{Trace: t.Name, Calls: t.Calls(), Replicas: len(t.Replicas), Seconds: t.Span.Seconds()}
	if !math.IsNaN(o.Together) {
		out.Together = &o.Together
	}
	add := func(routing string, offers []trace.Offer) {
		r := tracedRouting{Routing: routing}
		for _, x := range offers {
			r.Offers = append(r.Offers, tracedOffer{x.Budget, x.Extra, sim.Millis(x.Delay), x.Probability, values(x.P99), values(x.P999)})
		}
		out.Routings = append(out.Routings, r)
	}
	add(asRouted, o.Plain)
	if o.Picked != nil {
		add(betterOfTwo, o.Picked)
	}
	return out
}

func values(i trace.Interval) *[]float64 {
	if !i.OK {
		return nil
	}
	return &[]float64{sim.Millis(i.Value), sim.Millis(i.Least), sim.Millis(i.Most)}
}

func writeTrace(w io.Writer, t *trace.Trace, o *trace.Offers) error {
	fmt.Fprintf(w, "%s: %d calls", t.Name, t.Calls())
	if len(t.Replicas) > 0 {
		fmt.Fprintf(w, " on %s in %v", plural(len(t.Replicas), "replica"), t.Span.Round(time.Millisecond))
	}
	fmt.Fprint(w, "\nWhat callers would wait for, in ms; in brackets where it lies in 95 of 100 resamplings\n\n")
	if err := writeOffers(w, asRouted, o.Plain); err != nil {
		return err
	}
	if o.Picked != nil {
		if err := writeOffers(w, betterOfTwo, o.Picked); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s\nNo load is replayed: what hedges and other picks do to queues is left out.\n", together(o.Together))
	return err
}

func writeOffers(w io.Writer, routing string, offers []trace.Offer) error {
	fmt.Fprintf(w, "routing: %s\n", routing)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "budget\textra\tdelay\tprobability\tp99\t\tp99.9\t\t")
	for _, x := range offers {
		if x.Budget == 0 {
			fmt.Fprintf(t, "none\t-\t-\t-\t%s\t%s\t\n", interval(x.P99), interval(x.P999))
			continue
		}
		fmt.Fprintf(t, "%g%%\t%.2f%%\t%s\t%.2f\t%s\t%s\t\n", 100*x.Budget, 100*x.Extra, short(x.Delay), x.Probability, interval(x.P99), interval(x.P999))
	}
	fmt.Fprintln(t)
	return t.Flush()
}

func interval(i trace.Interval) string {
	if !i.OK {
		return "-\t[too few]"
	}
	return fmt.Sprintf("%s\t[%s-%s]", short(i.Value), short(i.Least), short(i.Most))
}

// short is a time in ms, in three digits or more.
func short(d time.Duration) string {
	switch ms := sim.Millis(d); {
	case ms < 10:
		return fmt.Sprintf("%.2f", ms)
	case ms < 1000:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.0f", ms)
	}
}

// together says what the trace tells about slowness that replicas share.
func together(times float64) string {
	switch {
	case math.IsNaN(times):
		return "The trace does not say who was called when, so copies are taken to be independent: the best case. Lines of " +
			"arrival,replica,latency tell more."
	case times < 1.5:
		return fmt.Sprintf("Calls are slow on two replicas at once %.1f times as often as by chance: replicas are slow by themselves, and another one helps.", times)
	default:
		return fmt.Sprintf("Calls are slow on two replicas at once %.1f times as often as by chance: part of what is slow is slow everywhere, and the figures count that no copy rescues it.", times)
	}
}
