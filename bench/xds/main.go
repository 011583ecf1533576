// Command xds compares our xDS server with go-control-plane's LinearCache and
// SnapshotCache: the same gRPC options, the same clients in another process, one
// connection a stream, and rounds of all three interleaved, since the machine is
// shared. Ratios go to standard output as JSON, progress to standard error.
//
// Time counts from the instant at which a publish was due, to its last client.
// Each plan ends when every client holds the newest content of each of its names;
// one that does not get there fails the run.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hedged-project/hedged/bench/internal/child"
)

// workload is one row of the comparison.
type workload struct {
	Name      string
	Streams   int
	Resources int
	Names     int // of each client; 0: the wildcard
	Delta     bool
	Gap       time.Duration
	Snapshot  bool // SnapshotCache takes part
}

const (
	updates = 40
	bursts  = 3
	burst   = 100
)

var workloads = []workload{
	{"delta-1", 1000, 1, 1, true, 30 * time.Millisecond, true},
	{"delta-1-5000", 5000, 1, 1, true, 500 * time.Millisecond, false},
	{"delta-wildcard", 1000, 1000, 0, true, 30 * time.Millisecond, false},
	{"delta-5-names", 1000, 1000, 5, true, 30 * time.Millisecond, false},
	{"sotw-1", 1000, 1, 1, false, 30 * time.Millisecond, true},
	{"sotw-5-names", 1000, 1000, 5, false, 30 * time.Millisecond, false},
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "serve" {
		serve(os.Args[2], os.Args[3], child.Number(os.Args[4]))
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "follow" {
		follow(os.Args[2], child.Number(os.Args[3]), child.Number(os.Args[4]), child.Number(os.Args[5]), os.Args[6] == "delta")
		return
	}
	rounds := flag.Int("rounds", 5, "rounds of each workload")
	pace := flag.Float64("pace", 1, "this many times the time between updates: where others use the machine too, one that it can keep")
	only := flag.String("workloads", "", "these workloads only, by comma")
	flag.Parse()
	if err := run(*rounds, *only, *pace); err != nil {
		fmt.Fprintln(os.Stderr, "bench-xds:", err)
		os.Exit(1)
	}
}

func run(rounds int, only string, pace float64) error {
	out := map[string]any{"pace": pace}
	chosen := func(name string) bool { return only == "" || slices.Contains(strings.Split(only, ","), name) }
	for _, w := range workloads {
		if !chosen(w.Name) {
			continue
		}
		w.Gap = time.Duration(float64(w.Gap) * pace)
		result, err := compare(w, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		out[w.Name] = result
	}
	for name, f := range scenes {
		if !chosen(name) {
			continue
		}
		result, err := f()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out[name] = result
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

// sample is one server in one round. Times in milliseconds, but where said.
type sample struct {
	P50, P95    float64
	BurstLast   float64 // median over bursts, of the burst's last publish
	CPU         float64 // microseconds a delivery
	PublishMean float64
	PublishMax  float64
	Most        float64 // most deliveries of one client in a burst
	Stream      float64 // kilobytes a stream
}

// metrics names what is compared, and how to read it.
var metrics = []struct {
	name  string
	value func(sample) float64
}{
	{"p50_ms", func(s sample) float64 { return s.P50 }},
	{"p95_ms", func(s sample) float64 { return s.P95 }},
	{"burst_last_ms", func(s sample) float64 { return s.BurstLast }},
	{"cpu_us_per_delivery", func(s sample) float64 { return s.CPU }},
	{"publish_mean_ms", func(s sample) float64 { return s.PublishMean }},
	{"publish_max_ms", func(s sample) float64 { return s.PublishMax }},
	{"stream_kb", func(s sample) float64 { return s.Stream }},
	{"burst_most_deliveries", func(s sample) float64 { return s.Most }},
}

func compare(w workload, rounds int) (map[string]any, error) {
	kinds := []string{"ours", "linear"}
	if w.Snapshot {
		kinds = append(kinds, "snapshot")
	}
	samples := map[string][]sample{}
	for round := range rounds {
		for i := range kinds { // none is always first
			kind := kinds[(i+round)%len(kinds)]
			s, err := measure(w, kind)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kind, err)
			}
			samples[kind] = append(samples[kind], s)
			fmt.Fprintf(os.Stderr, "%s round %d %-8s %+v\n", w.Name, round+1, kind, s)
		}
	}
	out := map[string]any{"rounds": rounds}
	for _, m := range metrics {
		row := map[string]any{}
		for _, kind := range kinds {
			row[kind] = median(values(samples[kind], m.value))
		}
		for _, kind := range kinds[1:] {
			row["ratio_to_"+kind] = ratio(values(samples["ours"], m.value), values(samples[kind], m.value))
		}
		out[m.name] = row
	}
	return out, nil
}

func values(samples []sample, value func(sample) float64) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = value(s)
	}
	return out
}

// measure runs one server with fresh processes.
func measure(w workload, kind string) (s sample, err error) {
	server, err := child.Start("serve", kind, "127.0.0.1:0", strconv.Itoa(w.Resources))
	if err != nil {
		return s, err
	}
	defer server.Stop()
	var addr string
	if err := server.Hear(&addr); err != nil {
		return s, err
	}
	var empty, full child.Memory
	if err := server.Ask("memory", &empty); err != nil {
		return s, err
	}
	clients, err := child.Start("follow", addr, strconv.Itoa(w.Streams), strconv.Itoa(w.Resources), strconv.Itoa(w.Names), map[bool]string{true: "delta", false: "sotw"}[w.Delta])
	if err != nil {
		return s, err
	}
	defer clients.Stop()
	var ready string
	if err := clients.Hear(&ready); err != nil {
		return s, err
	}
	time.Sleep(200 * time.Millisecond) // the last acknowledgements
	if err := server.Ask("memory", &full); err != nil {
		return s, err
	}
	s.Stream = float64(full.InUse-empty.InUse) / float64(w.Streams) / 1000

	next := int64(w.Resources)
	var cpu time.Duration
	var deliveries int64
	step := func(n int, gap time.Duration) (published, received, error) {
		p := plan{First: next, N: n, Gap: gap}
		next += int64(n)
		pub, rec, spent, err := carry(server, clients, p)
		cpu += spent
		deliveries += rec.Deliveries
		return pub, rec, err
	}
	pub, rec, err := step(updates, w.Gap)
	if err != nil {
		return s, err
	}
	s.CPU = float64(cpu.Nanoseconds()) / 1e3 / float64(deliveries)
	s.PublishMean, s.PublishMax = ms(pub.Mean), ms(pub.Max)
	s.P50, s.P95 = ms(quantile(rec.Latencies, .5)), ms(quantile(rec.Latencies, .95))
	var last []float64
	for range bursts {
		_, rec, err := step(burst, 0)
		if err != nil {
			return s, err
		}
		last = append(last, ms(slices.Max(rec.Latencies)))
		s.Most = max(s.Most, float64(rec.Most))
	}
	s.BurstLast = median(last)
	return s, nil
}

// carry has the server carry out a plan that the clients wait for.
func carry(server, clients *child.Process, p plan) (pub published, rec received, spent time.Duration, err error) {
	var before, after time.Duration
	if err := server.Ask("cpu", &before); err != nil {
		return pub, rec, 0, err
	}
	p.Start = time.Now().Add(100 * time.Millisecond)
	var expecting string
	if err := clients.Ask(p, &expecting); err != nil {
		return pub, rec, 0, err
	}
	if err := server.Ask(p, &pub); err != nil {
		return pub, rec, 0, err
	}
	if err := clients.Hear(&rec); err != nil {
		return pub, rec, 0, err
	}
	time.Sleep(50 * time.Millisecond) // the last acknowledgements
	err = server.Ask("cpu", &after)
	return pub, rec, after - before, err
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
