//go:build !race

package client

const raceSlowdown = 1
