// Command client compares the client library with its peers, side by side on this
// machine: what a call costs that is not hedged and one that is, how many calls a
// second 64 callers make over loopback, and what callers wait for in the
// experiment of the article that asked for hedged.
//
// Everything that is compared runs in turns in one process, with a second run of
// the plain library as control: a difference within the control's is none. The
// peers are released versions, each tuned: their settings are in the output, which
// is JSON on standard output. -part picks a part; -quick makes it short.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

type output struct {
	Go       string            `json:"go"`
	CPUs     int               `json:"cpus"`
	Versions map[string]string `json:"versions"`
	Settings map[string]string `json:"settings"`

	Unhedged   []cost   `json:"unhedged,omitempty"`
	Hedged     []cost   `json:"hedged,omitempty"`
	Throughput []rate   `json:"throughput_64_callers,omitempty"`
	Experiment []result `json:"experiment,omitempty"`
}

func main() {
	part := flag.String("part", "", "cost, throughput or experiment; empty: all")
	inFlight := flag.String("in-flight", "4,40,400", "of the experiment")
	quick := flag.Bool("quick", false, "a short run, whose tails mean little")
	flag.Parse()
	out := output{
		Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0), Versions: versions(),
		Settings: map[string]string{
			"hedged":         "target 5%, all defaults, package client/local in the daemon's place; a fixed policy where the price of a call is measured",
			"failsafe-go":    "HedgePolicy with a fixed delay and one hedge; in the experiment the delay that makes hedged's extra load in the stationary case",
			"hedgedhttp":     "a fixed delay and upto 2; likewise",
			"plain (grpc)":   "grpc-go with round_robin",
			"plain (http)":   "net/http with a transport that goes round the replicas",
			"cost's delay":   "1 s where no call is hedged, 1 ms where each one is",
			"failsafe's R":   "any for gRPC: attempts share the caller's reply",
			"experiment":     "three replicas over loopback, 5 to 15 ms, and a hundredth of the attempts 1 s",
			"throughput":     "two replicas over loopback that answer at once",
			"A/A":            "\"plain again\" is the same code a second time",
			"not comparable": "hedgedhttp has no gRPC; failsafe-go and hedgedhttp choose no replica",
		},
	}
	for _, p := range []struct {
		name string
		run  func(quick bool)
	}{
		{"cost", func(q bool) { out.Unhedged, out.Hedged = costs(q) }},
		{"throughput", func(q bool) { out.Throughput = throughput(q) }},
		{"experiment", func(q bool) { out.Experiment = experiment(numbers(*inFlight), q) }},
	} {
		if *part == "" || *part == p.name {
			fmt.Fprintln(os.Stderr, "bench-client:", p.name)
			p.run(*quick)
		}
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	if err := enc.Encode(out); err != nil {
		fail(err)
	}
}

func numbers(list string) (out []int) {
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 {
			fail(fmt.Errorf("-in-flight: %q, want numbers with commas between", list))
		}
		out = append(out, n)
	}
	return out
}

// versions returns the peers' as they were built in.
func versions() map[string]string {
	out := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return out
	}
	for _, m := range info.Deps {
		for _, name := range []string{"failsafe-go/failsafe-go", "cristalhq/hedgedhttp", "google.golang.org/grpc"} {
			if strings.HasSuffix(m.Path, name) {
				out[m.Path] = m.Version
			}
		}
	}
	return out
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench-client:", err)
	os.Exit(1)
}
