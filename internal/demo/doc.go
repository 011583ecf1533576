// Package demo shows hedged at work on this machine: a real daemon in a process
// of its own, three real gRPC replicas that stall now and then, and real clients
// that know of the daemon only its address.
//
// It repeats the experiment of the article that asked for hedged, in a closed
// loop, and plays short scenes of what goes wrong in the field. Read demo.go
// first; experiment.go is the article's table, each scene has a file.
package demo
