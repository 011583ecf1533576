package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hedged-project/hedged/report"
)

const (
	// longest is more than any run lasts.
	longest = 1000 * time.Hour
	// patience is how long after the scenario's end answers are waited for: without,
	// the slow ones of the last requests would be missing.
	patience = time.Hour
)

// World is one run of a scenario under one policy. It belongs to one goroutine.
type World struct {
	sc  *Scenario
	law law
	now time.Duration // since the start

	events queue
	calls  []*call
	idle   []int32 // of calls, those to use again
	groups groups

	open   int  // requests under way
	ending bool // no more requests start

	clients  []*client // by slot
	joined   int32     // clients ever
	replicas []replica

	// What the scenario changes while the world runs.
	load           load
	latency        latencyModel
	stalls         stalls
	slow           slowdowns
	network        network
	daemonDown     bool
	episode        bool   // of all replicas
	replicaEpisode []bool // of each
	episodeGen     uint32

	// Each matter has its own source of chance, so that two policies meet the
	// same arrivals, changes, clients and primaries.
	arrive, fate, change, work, routes, ways, coins, lies *rand.Rand

	random func() uint64 // routes
	turns  [2]uint64     // of round robin: primaries, hedges
	tried  []candidate   // of the call that is routed

	probe  Probe
	result *Result
}

// network is the way between a client and a replica: so long, and so much more
// at most, evenly spread.
type network struct{ way, jitter time.Duration }

func newWorld(sc *Scenario, seed uint64, newLaw func(*World) law) *World {
	source := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	w := &World{
		sc:     sc,
		arrive: source(1),
		change: source(2),
		work:   source(3),
		routes: source(4),
		ways:   source(5),
		fate:   source(6),
		coins:  source(8),
		lies:   source(7),
	}
	w.random = w.routes.Uint64
	w.replicas = make([]replica, sc.replicas)
	for i := range w.replicas {
		w.replicas[i].workers = sc.workers
		w.replicas[i].served = make([]report.Served, len(sc.methods)+1)
	}
	w.replicaEpisode = make([]bool, sc.replicas)
	w.slow = slowdowns{factor: 1, byReplica: make([]float64, sc.replicas), frozenUntil: -1}
	for i := range w.slow.byReplica {
		w.slow.byReplica[i] = 1
	}
	w.load.arrivals = sc.arrivals
	w.latency = sc.latency
	w.result = newResult(sc)
	w.law = newLaw(w)
	return w
}

func (w *World) push(e event) { w.events.push(e) }

// way is how long an attempt, an answer or a cancellation is under way between a
// client and a replica.
func (w *World) way(c *client, replica int32) time.Duration {
	way := w.network.way
	if w.network.jitter > 0 {
		way += time.Duration(w.ways.Int64N(int64(w.network.jitter)))
	}
	if z := &w.sc.zones; z.far > 0 && z.first(c.slot) != z.firstReplica(replica) {
		way += z.far
	}
	return way
}

// run lets the whole scenario pass.
func (w *World) run(ctx context.Context) error {
	w.setClients(w.sc.clients)
	for i, c := range w.sc.changes {
		if c.at == 0 {
			c.apply(w)
			continue
		}
		w.push(event{at: c.at, kind: evChange, ref: int32(i)})
	}
	w.startLoad()
	w.law.begin()
	for n := 0; len(w.events.heap) > 0; n++ {
		if n&(1<<16-1) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e := w.events.pop()
		if e.at >= w.sc.duration && !w.ending {
			w.ending = true
			w.result.finishLoad(w)
		}
		if w.ending && (w.open == 0 || e.at >= w.sc.duration+patience) {
			break
		}
		w.now = e.at
		w.happen(e)
	}
	w.result.finish()
	return nil
}

func (w *World) happen(e event) {
	switch e.kind {
	case evArrival:
		w.arrival(e.gen)
	case evDue:
		if c := w.calls[e.ref]; c.gen == e.gen {
			w.ring(c)
		}
	case evReach, evServed, evBack, evCancel:
		c := w.calls[e.ref>>attemptsBits]
		if c.gen == e.gen {
			w.move(e.kind, c, int(e.ref&(1<<attemptsBits-1)))
		}
	case evChange:
		w.sc.changes[e.ref].apply(w)
	case evBurst:
		w.burst(e.ref == 1)
	case evEpisode:
		w.toggle(e.ref, e.gen)
	case evLife:
		w.life(e.ref, e.gen)
	default:
		w.law.happen(e)
	}
}

func (w *World) move(k kind, c *call, i int) {
	switch k {
	case evReach:
		w.reach(c, i)
	case evServed:
		w.served(c, i)
	case evBack:
		w.back(c, i)
	case evCancel:
		w.drop(c, i)
	}
}
