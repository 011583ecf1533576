package demo

import (
	"context"
	"fmt"
	"slices"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// Options say what to show.
type Options struct {
	Daemon   []string // command that starts a daemon; addresses and state directory are added
	Burner   []string // command that runs Burn until it is killed
	InFlight []int    // calls in flight, one setting after the other
	Calls    int      // of each run; 0: only the scenes
	Runs     int      // of each setting
	Target   float64  // extra load
	Seed     uint64   // of the replicas' latencies
	Cold     bool     // no plain run before the hedged one
	Scenes   []string // names; see Scenes
	Simulate bool     // the hedged settings, to show them beside
	// Progress is told what is being done and how far it is, 0 to 1, often and
	// from several goroutines. Nil: nobody is told.
	Progress func(what string, done float64)
}

// Play shows everything that o asks for. With an error it returns what was
// measured before it, if anything.
func Play(ctx context.Context, o Options) (*Result, error) {
	dir, remove, err := stateDir()
	if err != nil {
		return nil, err
	}
	defer remove()
	if o.Progress == nil {
		o.Progress = func(string, float64) {}
	}
	d, err := startDaemon(ctx, append(slices.Clone(o.Daemon), "--state-dir", dir))
	if err != nil {
		return nil, err
	}
	defer d.close()

	r := &Result{Runs: []Run{}, Simulated: []Simulated{}, Scenes: []Scene{}}
	if o.Calls > 0 {
		if err := experiment(ctx, o, d, r); err != nil {
			return r, err
		}
	}
	if o.Simulate {
		if r.Simulated, err = simulate(ctx, o, r.Runs); err != nil {
			return r, err
		}
	}
	for _, name := range o.Scenes {
		s, err := playScene(ctx, o, d, name)
		if err != nil {
			return r, fmt.Errorf("scene %s: %w", name, err)
		}
		r.Scenes = append(r.Scenes, s)
	}
	return r, nil
}

// scenes are what can be shown beside the article's experiment, in the order of
// the show.
var scenes = []struct {
	name string
	play func(context.Context, stage) ([]Figure, error)
}{
	{"kill-switch", killSwitch},
	{"daemon-restart", daemonRestart},
	{"slow-replica", slowReplica},
	{"drift", drift},
	{"http", overHTTP},
	{"write", writes},
	{"step", step},
	{"shared", shared},
	{"failing", failing},
	{"fanout", fanout},
}

// Scenes returns the names of all scenes.
func Scenes() []string {
	var names []string
	for _, s := range scenes {
		names = append(names, s.name)
	}
	return names
}

// stage is what a scene plays on: a service of its own, hedging.
type stage struct {
	o       Options
	d       *daemonProcess
	fleet   *fleet
	service string
	// progress is told how far the scene is, 0 to 1.
	progress func(done float64)
}

func playScene(ctx context.Context, o Options, d *daemonProcess, name string) (Scene, error) {
	i := slices.IndexFunc(scenes, func(s struct {
		name string
		play func(context.Context, stage) ([]Figure, error)
	}) bool {
		return s.name == name
	})
	if i < 0 {
		return Scene{}, fmt.Errorf("is unknown, want one of %v", Scenes())
	}
	f, err := startFleet(d.ready.GRPC, name, o.Seed)
	if err != nil {
		return Scene{}, err
	}
	defer f.close()
	if err := d.set(ctx, name, hedgedv1.Mode_MODE_ACTIVE, o.Target); err != nil {
		return Scene{}, err
	}
	figures, err := scenes[i].play(ctx, stage{
		o: o, d: d, fleet: f, service: name,
		progress: func(done float64) { o.Progress(name, done) },
	})
	return Scene{Name: name, Figures: figures}, err
}

// hedging starts a client that may hedge, under a load of 40 calls in flight. The
// scene ends the load, then closes the client.
func (s stage) hedging(ctx context.Context) (*subscriber, *running, error) {
	c, err := s.fleet.subscribe(ctx, s.d.ready.GRPC, s.service)
	if err != nil {
		return nil, nil, err
	}
	if err := c.warmUp(ctx); err != nil {
		c.close()
		return nil, nil, err
	}
	return c, begin(ctx, load{conn: c.conn, inFlight: 40}), nil
}
