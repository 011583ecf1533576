// Package daemon wires hedged together: reports come in, each service's law
// decides, policies go out, operators look and override.
//
// It decides nothing itself; the law of a service is package control. Read
// daemon.go for the life cycle, then follow a sample: ingest.go (one report
// stream), source.go (what is remembered of a client), owner.go (the one
// goroutine that owns a service), table.go (the policies in force and their
// publication). admin.go is the operator's API, metrics.go what is scraped.
package daemon
