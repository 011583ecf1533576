package sim

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Whoever writes a scenario is told where it is wrong, what was read, and what may
// stand there.
func TestParseErrors(t *testing.T) {
	const ok = "latency constant 1ms\n"
	for text, want := range map[string]string{
		"":                                            `s.txt:1: latency: is missing`,
		ok + "latncy constant 1ms":                    `s.txt:2: field: "latncy" is unknown; did you mean "latency"?`,
		ok + "frobnicate":                             `s.txt:2: field: "frobnicate" is unknown, want title, duration,`,
		"latency lognormal 10ms":                      `s.txt:1: latency: the sigma is missing`,
		"latency lognorml 10ms 1":                     `s.txt:1: latency: model "lognorml", want constant, uniform, exponential, lognormal, pareto or file; did you mean "lognormal"?`,
		"latency constant 10":                         `s.txt:1: latency: latency "10", want a time of 0s to 1h0m0s`,
		"latency uniform 5ms 4ms":                     `s.txt:1: latency: most "4ms", want a time of 5ms to 1h0m0s`,
		"latency file x":                              `s.txt:1: latency: "x": files are not read here`,
		"latency constant 1ms 2ms":                    `s.txt:1: latency: "2ms" is one value too many`,
		ok + ok:                                       `s.txt:2: latency: was set already, on line 1`,
		ok + "# a comment\nduration 25h":              `s.txt:3: duration: time "25h", want a time of 1s to 24h0m0s`,
		ok + "duration 5s":                            `s.txt:1: warmup: 10s, want less than the duration of 5s`,
		ok + "target 60%":                             `s.txt:2: target: share "60%", want a share of 0.1% to 50%`,
		ok + "target NaN":                             `s.txt:2: target: share "NaN"`,
		ok + "clients 1001":                           `s.txt:2: clients: number "1001", want a whole number of 1 to 1000`,
		ok + "clients 10 life":                        `s.txt:2: clients: the life is missing`,
		ok + "arrivals poison 5":                      `want poisson, steady or closed; did you mean "poisson"?`,
		ok + "arrivals poisson -1":                    `s.txt:2: arrivals: rate "-1", want a number of 0 to 1e+06`,
		ok + "arrivals poisson NaN":                   `s.txt:2: arrivals: rate "NaN"`,
		ok + "at 5s arrivals closed 4":                `s.txt:2: arrivals: closed cannot come in the course of a run`,
		ok + "bursts 10 every 1s for 1s":              `s.txt:2: bursts: for 1s, want less than every 1s`,
		ok + "bursts 10 for 1s":                       `s.txt:2: bursts: "for", want "every"`,
		ok + "stall all 1% 5ms":                       `s.txt:2: stall: "every" and its value are missing`,
		ok + "replicas 0":                             `s.txt:2: replicas: number "0", want a whole number of 1 to 1000`,
		ok + "at 5s replicas 4":                       `s.txt:2: replicas: cannot change in the course of a run`,
		ok + "at 5s":                                  `s.txt:2: at: no field follows`,
		ok + "at soon slowdown 3":                     `s.txt:2: at: time "soon", want a time of 0s to 24h0m0s`,
		ok + "at 61s slowdown 3":                      `s.txt:2: at: 1m1s, want less than the duration of 1m0s`,
		ok + "slowdown 3 replica 3":                   `s.txt:2: slowdown: replica 3, want 0 to 2`,
		ok + "method 60% 2\nmethod 50% 3":             `s.txt:3: method: share "50%", want a share of 0.1% to 40%`,
		ok + strings.Repeat("method 1% 2\n", 10):      `s.txt:11: method: there are 9 already`,
		ok + "zones 50%":                              `s.txt:2: zones: "far" and its value are missing`,
		ok + "liars 5% x10":                           `s.txt:2: liars: lie "x10", want x0.01, x100, random or counts`,
		ok + "daemon dwon":                            `did you mean "down"?`,
		ok + "arrivals closed 4\ndaily 50% period 1m": `s.txt:2: arrivals: closed, want poisson or steady`,
		ok + "duration 24h\narrivals poisson 1e6":     `s.txt:2: duration: 24h0m0s at 1e+06 calls a second is 8.64e+10 calls`,
		strings.Repeat("#", maxText+1):                `s.txt: is 65537 bytes long, want at most 65536`,
	} {
		_, err := Parse("s.txt", text, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	files := map[string]string{"measured.txt": "1ms\n3ms\n"}
	open := func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, errors.New(name + " is not there")
		}
		return []byte(text), nil
	}
	s, err := Parse("dir/mine.txt", `
title    mine  # and nobody else's
duration 2m
latency  file measured.txt
target   2.5%
at 30s   slowdown 2
at 10s   stall off
routing  shortest-queue
`, open)
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "mine" || s.Title != "mine" || s.duration != 2*time.Minute || s.target != .025 || s.routing != routeShortest {
		t.Errorf("%+v", s)
	}
	if len(s.changes) != 2 || s.changes[0].at != 10*time.Second {
		t.Errorf("changes %+v, want them by time", s.changes)
	}
	if _, err := Parse("s", "latency file other.txt", open); err == nil || !strings.Contains(err.Error(), "s:1: latency: other.txt is not there") {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Shipped("qeue"); err == nil || !strings.Contains(err.Error(), `did you mean "queue"?`) {
		t.Errorf("unknown name: %v", err)
	}
	if _, err := FindPolicy("finagel"); err == nil || !strings.Contains(err.Error(), `did you mean "finagle"?`) {
		t.Errorf("unknown policy: %v", err)
	}
}

// Whatever is written, Parse says what is wrong or gives a world that runs.
func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		s, err := Shipped(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.Text)
	}
	f.Add("latency pareto 0.5 1ns\nat 0s slowdown 1e6\ncorrelation 1")
	f.Add("latency constant 0s\nnetwork 0s\narrivals closed 3\nduration 1s\nwarmup 0s")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("s.txt", text, nil)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "s.txt:") {
				t.Errorf("%q does not say where", err)
			}
			return
		}
		again, err := Parse("s.txt", s.Text, nil)
		if err != nil || again.duration != s.duration || len(again.changes) != len(s.changes) {
			t.Errorf("parsed again: %v", err)
		}
		w := newWorld(s, 1, newOurs)
		w.setClients(s.clients)
		for _, c := range s.changes {
			c.apply(w)
		}
		w.startLoad()
		w.law.begin()
		for n := 0; n < 500 && len(w.events.heap) > 0; n++ {
			e := w.events.pop()
			if e.at < w.now {
				t.Fatalf("time goes back from %v to %v", w.now, e.at)
			}
			w.now = e.at
			w.happen(e)
		}
	})
}
