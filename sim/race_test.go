//go:build race

package sim

// raceEnabled says that the race detector slows everything down.
const raceEnabled = true
