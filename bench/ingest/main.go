// Command ingest measures what the daemon spends on reports: many streams of one
// connection each, in another process, which report once a second, 12 replicas
// with 3 histograms of 100 samples each (about 4 kB). The result goes to standard
// output as JSON. It fails where a window is wrong, or a frame that came twice
// was counted twice.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/hedged-project/hedged/bench/internal/child"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		serve()
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "report" {
		report(os.Args[2], child.Number(os.Args[3]))
		return
	}
	streams := flag.Int("streams", 10_000, "report streams")
	seconds := flag.Int("seconds", 15, "time to measure")
	flag.Parse()
	result, err := run(*streams, *seconds)
	if err == nil {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-ingest:", err)
		os.Exit(1)
	}
}

// count is what the daemon counted since its start.
type count struct {
	Frames, Duplicates, Refused int64
	Calls                       int64 // of all services, since the start
	Window                      int64 // of all services, in the window
}

func run(streams, seconds int) (map[string]any, error) {
	server, err := child.Start("serve")
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	var addr string
	if err := server.Hear(&addr); err != nil {
		return nil, err
	}
	clients, err := child.Start("report", addr, fmt.Sprint(streams))
	if err != nil {
		return nil, err
	}
	defer clients.Stop()
	var ready string
	if err := clients.Hear(&ready); err != nil {
		return nil, err
	}
	var before, after time.Duration
	var began, ended count
	if err := server.Ask("cpu", &before); err != nil {
		return nil, err
	}
	if err := server.Ask("count", &began); err != nil {
		return nil, err
	}
	start := time.Now()
	time.Sleep(time.Duration(seconds) * time.Second)
	took := time.Since(start)
	if err := server.Ask("cpu", &after); err != nil {
		return nil, err
	}
	if err := server.Ask("count", &ended); err != nil {
		return nil, err
	}
	var memory child.Memory
	if err := server.Ask("resident", &memory); err != nil {
		return nil, err
	}
	frames := ended.Frames - began.Frames
	cpu := (after - before).Seconds()
	result := map[string]any{
		"streams":              streams,
		"frames_per_s":         float64(frames) / took.Seconds(),
		"cores":                cpu / took.Seconds(),
		"cpu_us_per_frame":     cpu * 1e6 / float64(frames),
		"cores_at_10000_per_s": cpu / float64(frames) * 1e4,
		"rss_mb":               memory.RSS >> 20,
		"peak_rss_mb":          memory.PeakRSS >> 20,
	}

	// Everything stops, each stream is broken, and sends its last frame again.
	var sent int64
	if err := clients.Ask("again", &sent); err != nil {
		return nil, err
	}
	if err := server.Ask("count", &ended); err != nil {
		return nil, err
	}
	if ended.Frames != sent || ended.Calls != sent*callsInFrame || ended.Duplicates != int64(streams) || ended.Refused != 0 {
		return nil, fmt.Errorf("%d frames of %d calls were sent, and %d again; counted are %+v", sent, callsInFrame, streams, ended)
	}
	result["frames"], result["sent_again"] = sent, streams
	return result, nil
}
