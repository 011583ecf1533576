package xds

import (
	"bytes"
	"fmt"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Cache holds the newest content of each resource. It is safe for concurrent
// use; one Cache may stand behind several Servers.
type Cache struct {
	mu        sync.RWMutex
	types     map[string]map[string]*resource // by type URL, then by name
	feeds     map[*feed]struct{}
	publishes uint64
}

// resource is one content of one name. It never changes after Set, so all
// streams share it.
type resource struct {
	version string
	delta   *discovery.Resource // its Resource field is what a state-of-the-world response carries
}

// size is what the resource takes in a response, near enough.
func (r *resource) size() int {
	return len(r.delta.Name) + len(r.version) + len(r.delta.Resource.TypeUrl) + len(r.delta.Resource.Value) + 32
}

// resourceID names a resource.
type resourceID struct{ typeURL, name string }

// feed is what changed since a server looked last: names only, so that its size
// is bounded by the number of names, however slow the server is.
type feed struct {
	changed map[resourceID]struct{} // under the cache's lock
	wake    chan struct{}           // of size 1: something changed
}

// NewCache returns a cache that serves types (type URLs) from the start: a name
// of theirs that does not exist is told to be absent. A type that is not among
// them is unknown, and requests for it wait in silence, until its first Set.
func NewCache(types ...string) *Cache {
	c := &Cache{types: map[string]map[string]*resource{}, feeds: map[*feed]struct{}{}}
	for _, t := range types {
		c.types[t] = map[string]*resource{}
	}
	return c
}

// Set publishes content under a type URL and a name. The message is marshalled
// here, once, and is not kept. The version names the content: a hash of it, so
// that equal content has an equal version after a restart too. Setting the
// version that is already there does nothing. Set never waits for a stream.
func (c *Cache) Set(typeURL, name string, m proto.Message, version string) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("xds: marshal %s %q: %w", typeURL, name, err)
	}
	return c.put(typeURL, name, b, version)
}

// SetBytes is Set for content that is marshalled already; it copies content.
func (c *Cache) SetBytes(typeURL, name string, content []byte, version string) error {
	return c.put(typeURL, name, bytes.Clone(content), version)
}

func (c *Cache) put(typeURL, name string, content []byte, version string) error {
	for _, f := range []struct{ field, value string }{{"type_url", typeURL}, {"name", name}, {"version", version}} {
		if err := checkText(f.field, f.value); err != nil {
			return fmt.Errorf("xds: set: %w", err)
		}
	}
	r := &resource{version: version, delta: &discovery.Resource{
		Name:     name,
		Version:  version,
		Resource: &anypb.Any{TypeUrl: typeURL, Value: content},
	}}
	if n := r.size(); n > maxReply {
		return fmt.Errorf("xds: set: content: %s %s takes %d bytes, want at most %d", quote(typeURL), quote(name), n, maxReply)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.types[typeURL]
	if names == nil {
		names = map[string]*resource{}
		c.types[typeURL] = names
	}
	if old := names[name]; old != nil && old.version == version {
		return nil
	}
	names[name] = r
	c.announce(resourceID{typeURL, name})
	return nil
}

// Delete withdraws a resource. Deleting what does not exist does nothing.
func (c *Cache) Delete(typeURL, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.types[typeURL][name]; !ok {
		return
	}
	delete(c.types[typeURL], name)
	c.announce(resourceID{typeURL, name})
}

// announce notes a change for every server. It runs under the lock and costs
// the same however many streams there are.
func (c *Cache) announce(id resourceID) {
	c.publishes++
	for f := range c.feeds {
		f.changed[id] = struct{}{}
		select {
		case f.wake <- struct{}{}:
		default: // the server has not come back from the last call yet
		}
	}
}

// get returns the newest content of a name, or nil.
func (c *Cache) get(typeURL, name string) *resource {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.types[typeURL][name]
}

// version returns the version of the newest content of a name, or nothing.
func (c *Cache) version(typeURL, name string) string {
	if r := c.get(typeURL, name); r != nil {
		return r.version
	}
	return ""
}

// knows reports whether the type is served.
func (c *Cache) knows(typeURL string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.types[typeURL] != nil
}

func (c *Cache) published() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.publishes
}

func (c *Cache) attach() *feed {
	f := &feed{changed: map[resourceID]struct{}{}, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.feeds[f] = struct{}{}
	return f
}

func (c *Cache) detach(f *feed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.feeds, f)
}

// take empties the feed.
func (c *Cache) take(f *feed) map[resourceID]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := f.changed
	f.changed = map[resourceID]struct{}{}
	return changed
}
