//go:build race

package client

// raceSlowdown is how many times fewer calls a long test makes under the race
// detector, which makes each so much slower.
const raceSlowdown = 5
