package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/hedged-project/hedged/bench/internal/child"
)

// scenes are what only our server is asked to do.
var scenes = map[string]func() (map[string]any, error){
	"hold-10000":        hold,
	"restart-5000":      restart,
	"kill-switch-5000":  killSwitch,
	"kill-switch-flood": killSwitchFlood,
}

// fleetOf starts our server with streams that all have what there is.
func fleetOf(streams, resources, names int, addr string) (server, clients *child.Process, at string, err error) {
	if server, err = child.Start("serve", "ours", addr, strconv.Itoa(resources)); err != nil {
		return nil, nil, "", err
	}
	if err := server.Hear(&at); err != nil {
		return server, nil, "", err
	}
	if clients, err = child.Start("follow", at, strconv.Itoa(streams), strconv.Itoa(resources), strconv.Itoa(names), "delta"); err != nil {
		return server, nil, "", err
	}
	var ready string
	err = clients.Hear(&ready)
	return server, clients, at, err
}

// hold keeps 10,000 streams.
func hold() (map[string]any, error) {
	server, clients, _, err := fleetOf(10_000, 1, 1, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	defer clients.Stop()
	var u child.Memory
	if err := server.Ask("memory", &u); err != nil {
		return nil, err
	}
	return map[string]any{"rss_mb": u.RSS >> 20, "peak_rss_mb": u.PeakRSS >> 20}, nil
}

// restart kills the server under 5,000 streams and starts another in its place.
func restart() (map[string]any, error) {
	const streams = 5000
	server, clients, addr, err := fleetOf(streams, 20, 20, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer func() { server.Stop() }()
	defer clients.Stop()
	var steady, after child.Memory
	if err := server.Ask("memory", &steady); err != nil {
		return nil, err
	}
	var again string
	if err := clients.Ask("again", &again); err != nil {
		return nil, err
	}
	began := time.Now()
	server.Stop()
	if server, err = child.Start("serve", "ours", addr, "20"); err != nil {
		return nil, err
	}
	var at string
	if err := server.Hear(&at); err != nil {
		return nil, err
	}
	var resent int
	if err := clients.Hear(&resent); err != nil {
		return nil, err
	}
	took := time.Since(began)
	if err := server.Ask("memory", &after); err != nil {
		return nil, err
	}
	return map[string]any{
		"all_back_s":   took.Seconds(),
		"resent":       resent,
		"steady_mb":    steady.RSS >> 20,
		"peak_mb":      after.PeakRSS >> 20,
		"peak_by_rest": float64(after.PeakRSS) / float64(steady.RSS),
	}, nil
}

// killSwitch publishes one urgent change to 5,000 streams, in the middle of two
// seconds in which 40 other changes a second go out, each to a part of them.
func killSwitch() (map[string]any, error) { return stopped(commonAndOne) }

// killSwitchFlood is killSwitch where each of the other changes concerns all, which
// is far more than two cores can deliver one by one.
func killSwitchFlood() (map[string]any, error) { return stopped(stopResources) }

const stopResources = 41

func stopped(names int) (map[string]any, error) {
	const resources, others = stopResources, 82
	server, clients, _, err := fleetOf(5000, resources, names, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	defer clients.Stop()
	var took []float64
	for round := range 5 {
		p := plan{First: int64((round + 1) * others * resources), N: others, Gap: time.Second / 40, Off: resources + 1}
		_, rec, _, err := carry(server, clients, p)
		if err != nil {
			return nil, err
		}
		took = append(took, ms(rec.Latencies[p.Off-1]))
		fmt.Fprintf(os.Stderr, "kill switch: last client %v ms; others p50 %v ms\n", took[round], ms(quantile(rec.Latencies, .5)))
	}
	return map[string]any{"last_client_ms": median(took), "all_ms": took}, nil
}
