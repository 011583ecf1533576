// Package sim is a discrete-event world in virtual time in which clients call a
// service and hedge. Its clients keep to the rules of package client and run the
// real law of a call (package hedge); its daemon is the real law of a service
// (package control) fed with real reports. Beside them it runs what others do,
// written from their published rules, so that all meet the same calls.
//
// It is not a model of gRPC, of a machine or of a network's loss: an attempt takes
// the time that the scenario says, plus the queue at its replica and the way there
// and back.
//
// A run depends on its scenario, policy and seed alone, not on the number of
// CPUs: one world is one goroutine, and only whole worlds run beside each other.
//
// Read scenario.go first: what a world is made of, as text. world.go is the loop,
// client.go the life of a call, policy.go what a hedging policy is.
package sim
