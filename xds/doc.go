// Package xds serves named, versioned resources to many clients over the
// aggregated discovery service of the xDS protocol, state of the world and
// incremental ("delta").
//
// It is neutral about content: a resource is a type URL, a name, a version and
// bytes. It is not a policy engine and stores nothing.
//
// A publisher calls Cache.Set and never waits for a client: a Server's fan-out
// goroutine marks the streams that watch the name, and each stream's own
// goroutine then reads the newest content from the cache. What a slow client
// missed in between is never sent.
//
// Read watch.go first: it is the law of one type on one stream, what is sent,
// when, and what an answer means, without locks or I/O. stream.go is the loop
// around it, server.go the service, cache.go the content.
package xds
