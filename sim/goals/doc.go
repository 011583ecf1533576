// Package goals is what hedged promises, as measurements that anyone can repeat: each
// goal is a row of a table (registry.go) with the worlds it is measured in, run with
// the shipped defaults of control.DefaultConfig, and the bounds that it must keep.
//
// It is not a test of the code, and it tunes nothing: what is measured here is chosen
// elsewhere, by other worlds.
//
// # Adding a goal
//
// Write the measurement as a function of a [Bench] in the file of its family and name
// it in the row's Parts, in registry.go; several parts of one row come one after
// the other and their checks are joined:
//
//	func slowShare(b *Bench) ([]Check, error) {
//		s := World("slow-share", `
//			duration %v
//			arrivals poisson 1000
//			latency  uniform 5ms 15ms
//			stall    call 1%% 1s`, Pick(b, 110*time.Second, 40*time.Second))
//		row, err := b.Run(s, Hedged(), Pick(b, 12, 3), nil)
//		if err != nil {
//			return nil, err
//		}
//		extra := Of(row, func(r *sim.Result) float64 { return 100 * r.Extra() })
//		return []Check{AtMost("extra", "%", extra, 5)}, nil
//	}
//
// The first check is the headline, whose spread the result shows. Names of checks are
// a few words and stay, since programs read them.
//
// All work is whole worlds: [Bench.Run] runs one for each seed, beside those of the
// other goals, in one pool of all processors, and a part's own code should only read
// what they measured. A part never starts goroutines, reads no clock and draws no
// chance but from seeds, so that figures do not depend on the machine. What a
// [sim.Result] does not tell, a [sim.Probe] sees: give Run a function that returns a
// probe for the i-th seed, which writes to an element i of the part's own.
//
// The full form is what counts: 12 seeds, 40 for probation, worlds of the size
// that the goal names. The quick form has the same ids and checks with fewer seeds and
// shorter worlds: all goals together must end within 50 s on two cores, so that one
// has about 4 s of one core, or 1.5 million calls. Its bounds are the same.
//
// # Oracles
//
// [Bench.Oracle] gives the best fixed delay and probability for a world: in the full
// form by a search of some 200 runs, in the quick form from oracle.txt, which
// `make oracle` writes anew. A world that is asked for must be in the row's Oracles; a
// quick form asks for the world of the full form.
package goals
