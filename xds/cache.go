package xds

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// Cache holds the newest content of each resource. It is safe for concurrent
// use; one Cache may stand behind several Servers.
type Cache struct {
	mu        sync.RWMutex
	kinds     map[string]*kind // by type URL
	feeds     []*feed
	publishes uint64
}

// kind is the resources of one type. It lists them by the time of their last
// change, so that whoever knows a revision finds what changed since at the cost
// of what changed: the fan-out, and each wildcard subscription, which therefore
// remembers one number and not a version for each name.
type kind struct {
	slots  map[string]*slot
	rev    uint64 // of the last change
	newest *slot
	sum    uint64 // of the hashes of what there is
}

// slot is the place of one name. It stays when the content is deleted: that is a
// change too, which streams learn from it.
type slot struct {
	name     string
	content  *resource // nil: deleted
	rev      uint64    // of the last change
	urgent   uint64    // revision of the last urgent change
	previous *slot     // changed before this one
	next     *slot     // changed after it
}

// change is a slot as it was when the cache was read.
type change struct {
	name    string
	content *resource // nil: deleted
	rev     uint64
	urgent  bool // a change since the reader looked last was urgent
}

// feed tells one shard of a server that something changed.
type feed struct {
	wake chan struct{} // of size 1
}

// NewCache returns a cache that serves types (type URLs) from the start: a name
// of theirs that does not exist is told to be absent. A type that is not among
// them is unknown, and requests for it wait in silence, until its first Set.
func NewCache(types ...string) *Cache {
	c := &Cache{kinds: map[string]*kind{}}
	for _, t := range types {
		c.kinds[t] = newKind()
	}
	return c
}

func newKind() *kind { return &kind{slots: map[string]*slot{}} }

// Set publishes content under a type URL and a name. The message is marshalled
// here, once, and is not kept. The version names the content: a hash of it, so
// that equal content has an equal version after a restart too. Setting the
// version that is already there does nothing. Set never waits for a stream.
func (c *Cache) Set(typeURL, name string, m proto.Message, version string) error {
	return c.set(typeURL, name, m, version, false)
}

// SetUrgent is Set for content that stops or tightens something: it is sent even
// to a client that has not answered what it was sent before.
func (c *Cache) SetUrgent(typeURL, name string, m proto.Message, version string) error {
	return c.set(typeURL, name, m, version, true)
}

// SetBytes is Set for content that is marshalled already; it copies content.
func (c *Cache) SetBytes(typeURL, name string, content []byte, version string) error {
	return c.put(typeURL, name, bytes.Clone(content), version, false)
}

func (c *Cache) set(typeURL, name string, m proto.Message, version string, urgent bool) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("xds: marshal %s %q: %w", typeURL, name, err)
	}
	return c.put(typeURL, name, b, version, urgent)
}

func (c *Cache) put(typeURL, name string, content []byte, version string, urgent bool) error {
	for _, f := range []struct{ field, value string }{{"type_url", typeURL}, {"name", name}, {"version", version}} {
		if err := checkText(f.field, f.value); err != nil {
			return fmt.Errorf("xds: set: %w", err)
		}
	}
	if name == wildcard {
		return fmt.Errorf("xds: set: name: %q stands for all names, want another", name)
	}
	r := newResource(typeURL, name, version, content)
	r.spread.published = time.Now()
	if n := len(r.wire); n > maxReply {
		return fmt.Errorf("xds: set: content: %s %s takes %d bytes, want at most %d", quote(typeURL), quote(name), n, maxReply)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[typeURL]
	if k == nil {
		k = newKind()
		c.kinds[typeURL] = k
	}
	s := k.slots[name]
	if s == nil {
		s = &slot{name: name}
		k.slots[name] = s
	} else if s.content != nil && s.content.version == version {
		return nil
	}
	r.spread.waiting.Store(int64(len(c.feeds)))
	k.change(s, r)
	if urgent {
		s.urgent = s.rev
	}
	c.announce()
	return nil
}

// Delete withdraws a resource. Deleting what does not exist does nothing.
func (c *Cache) Delete(typeURL, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[typeURL]
	if k == nil || k.slots[name] == nil || k.slots[name].content == nil {
		return
	}
	k.change(k.slots[name], nil)
	c.announce()
}

// change gives a slot new content and moves it to the end of the list.
func (k *kind) change(s *slot, content *resource) {
	if s.content != nil {
		k.sum -= s.content.hash
	}
	if content != nil {
		k.sum += content.hash
	}
	s.content = content
	k.rev++
	s.rev = k.rev
	if k.newest == s {
		return
	}
	if s.previous != nil {
		s.previous.next = s.next
	}
	if s.next != nil {
		s.next.previous = s.previous
	}
	s.previous, s.next = k.newest, nil
	if k.newest != nil {
		k.newest.next = s
	}
	k.newest = s
}

// announce wakes every shard of every server. It runs under the lock and costs
// the same however many streams there are.
func (c *Cache) announce() {
	c.publishes++
	for _, f := range c.feeds {
		select {
		case f.wake <- struct{}{}:
		default: // the shard has not come back from the last call yet
		}
	}
}

// get returns the newest content of a name, or nil.
func (c *Cache) get(typeURL, name string) *resource {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if k := c.kinds[typeURL]; k != nil {
		if s := k.slots[name]; s != nil {
			return s.content
		}
	}
	return nil
}

// changes returns what changed since a revision, oldest first, as far as size
// bytes of a message go, and whether that is all.
func (c *Cache) changes(typeURL string, since uint64, size int) (list []change, all bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k := c.kinds[typeURL]
	if k == nil {
		return nil, true
	}
	return k.changes(since, size)
}

func (k *kind) changes(since uint64, size int) (list []change, all bool) {
	if k.newest == nil || k.newest.rev <= since {
		return nil, true
	}
	s, n := k.newest, 1
	for s.previous != nil && s.previous.rev > since {
		s = s.previous
		n++
	}
	list = make([]change, 0, n)
	for ; s != nil; s = s.next {
		if size -= cost(s.name, s.content); size < 0 {
			return list, false
		}
		list = append(list, change{s.name, s.content, s.rev, s.urgent > since})
	}
	return list, true
}

// state returns all content of a type, the revision that it has, and the sum of
// its hashes.
func (c *Cache) state(typeURL string) (content []*resource, rev, sum uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	k := c.kinds[typeURL]
	if k == nil {
		return nil, 0, 0
	}
	content = make([]*resource, 0, len(k.slots))
	for s := k.newest; s != nil; s = s.previous {
		if s.content != nil {
			content = append(content, s.content)
		}
	}
	return content, k.rev, k.sum
}

// revision returns the revision of a type and the sum of its hashes.
func (c *Cache) revision(typeURL string) (rev, sum uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if k := c.kinds[typeURL]; k != nil {
		return k.rev, k.sum
	}
	return 0, 0
}

// knows reports whether the type is served.
func (c *Cache) knows(typeURL string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.kinds[typeURL] != nil
}

func (c *Cache) published() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.publishes
}

// attach returns a feed, and the revisions of the types as of now.
func (c *Cache) attach() (f *feed, revs map[string]uint64) {
	f = &feed{wake: make(chan struct{}, 1)}
	revs = map[string]uint64{}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.feeds = append(c.feeds, f)
	for typeURL, k := range c.kinds {
		revs[typeURL] = k.rev
	}
	return f, revs
}

func (c *Cache) detach(f *feed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.feeds = slices.DeleteFunc(c.feeds, func(g *feed) bool { return g == f })
}

// news calls f with what changed of each type since revs, and brings revs up to date.
func (c *Cache) news(revs map[string]uint64, f func(typeURL string, list []change)) {
	type part struct {
		typeURL string
		list    []change
	}
	var parts []part
	c.mu.RLock()
	for typeURL, k := range c.kinds {
		if list, _ := k.changes(revs[typeURL], maxInt); len(list) > 0 {
			revs[typeURL] = k.rev
			parts = append(parts, part{typeURL, list})
		}
	}
	c.mu.RUnlock()
	for _, p := range parts {
		f(p.typeURL, p.list)
	}
}
