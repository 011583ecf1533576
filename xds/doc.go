// Package xds serves named, versioned resources to many clients over the
// aggregated discovery service of the xDS protocol, state of the world and
// incremental ("delta").
//
// It is neutral about content: a resource is a type URL, a name, a version and
// bytes. It is not a policy engine and stores nothing.
//
// A publisher calls Cache.Set and never waits for a client: each shard of a
// Server marks the streams of its own that watch the name, and sends to those
// that have read what they were sent before the newest content of the cache.
// What a slow client missed in between is never sent.
//
// Read watch.go first: it is the law of one type on one stream, what is sent,
// when, and what an answer means, without locks or I/O. stream.go is the loop
// around it, shard.go the fan-out, service.go the RPCs, cache.go the content.
package xds
