package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/hedged-project/hedged/bench/internal/child"
	"github.com/hedged-project/hedged/daemon"
)

// serve is the daemon's process.
func serve() {
	dir, err := os.MkdirTemp("", "bench-ingest")
	if err != nil {
		log.Fatal(err)
	}
	cfg := daemon.DefaultConfig()
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.StateDir = "127.0.0.1:0", "127.0.0.1:0", dir
	cfg.Logger = slog.New(slog.DiscardHandler)
	d, err := daemon.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(d.Run(context.Background())) }()
	child.Say(d.GRPCAddr())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var question string
		if err := json.Unmarshal(in.Bytes(), &question); err != nil {
			log.Fatal(err)
		}
		switch question {
		case "cpu":
			child.Say(child.CPU())
		case "resident":
			child.Say(child.Resident())
		case "count":
			child.Say(counts(d.HTTPAddr()))
		}
	}
	_ = os.RemoveAll(dir)
}

// counts reads the daemon's own metrics.
func counts(addr string) (c count) {
	r, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Body.Close()
	in := bufio.NewScanner(r.Body)
	for in.Scan() {
		name, _, _ := strings.Cut(in.Text(), "{")
		name, _, _ = strings.Cut(name, " ")
		at := strings.LastIndexByte(in.Text(), ' ')
		value := func() int64 {
			v, err := strconv.ParseFloat(in.Text()[at+1:], 64)
			if err != nil {
				log.Fatal(err)
			}
			return int64(v)
		}
		switch name {
		case "hedged_report_frames_total":
			c.Frames = value()
		case "hedged_report_frames_duplicate_total":
			c.Duplicates = value()
		case "hedged_report_frames_refused_total":
			c.Refused = value()
		case "hedged_calls_total":
			c.Calls += value()
		}
	}
	return c
}
