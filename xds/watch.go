package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// watch is the law of one type on one stream: which names the client asked for,
// what it was sent and what it said about it. It has no lock, clock or I/O; the
// stream that owns it has.
//
// One rule serves both variants of the protocol: a name is dirty when what the
// client was sent may differ from what the cache holds, and a reply carries what
// really differs at the moment of sending. So a slow client gets the newest
// state only, and content that was rejected is not sent again before it changes.
//
//	request adds a name ----------------+
//	content of a watched name changes --+--> dirty --(gate open)--> reply, unanswered
//	                                                   ^                |
//	                                                   +-- ACK or NACK -+
//
// The gate is open while no reply waits for an answer. What a client asks for
// explicitly passes a closed gate, up to maxUnanswered replies.
type watch struct {
	typeURL string
	kind    StreamKind

	names map[string]*entry
	order []string // SotW: names, sorted
	dirty map[string]struct{}
	asked bool // a dirty name was asked for by a request

	unanswered []delivery // oldest first
}

// maxUnanswered is how many replies of one type may wait for an answer. Pushes
// keep to one; the rest lets subscription changes be answered at once.
const maxUnanswered = 8

// maxReply is the most content, in bytes, that one reply carries: gRPC clients
// refuse messages over 4 MiB unless told otherwise.
const maxReply = 3 << 20

// entry is one subscribed name.
type entry struct {
	told  bool   // something was said about it since the client asked
	sent  string // version sent last; empty: none, or said to be absent
	acked string // version accepted last; empty: none
	nack  string // why it was rejected last; empty: it was not
	at    time.Time
}

// delivery is a reply that the client has not answered.
type delivery struct {
	nonce string
	items []item
}

type item struct {
	entry   *entry
	version string
}

// reply is one response in the form common to both variants.
type reply struct {
	typeURL   string
	version   string // of the response; SotW only
	nonce     string
	resources []*resource
	removed   []string // delta only
}

func newWatch(typeURL string, kind StreamKind) *watch {
	return &watch{
		typeURL: typeURL,
		kind:    kind,
		names:   map[string]*entry{},
		dirty:   map[string]struct{}{},
	}
}

// subscribe applies what r says about names, whatever nonce it carries, and
// returns the names that are new and those that are gone.
//
// "The server must honor changes to the subscription state even if the nonce is
// stale. The nonce may be used to correlate an ack/nack with a server response,
// but should not be used to reject stale requests." (xDS protocol, "Incremental
// xDS"; here the rule holds for the state of the world too, where a change that
// is dropped may never be repeated.)
func (w *watch) subscribe(r *request) (added, removed []string) {
	if w.kind == SotW {
		return w.replace(r.names)
	}
	for _, name := range r.unsubscribe {
		if _, ok := w.names[name]; ok {
			w.drop(name)
			removed = append(removed, name)
		}
	}
	for _, name := range r.subscribe {
		e := w.names[name]
		if e == nil {
			e = &entry{}
			w.names[name] = e
			added = append(added, name)
		}
		// "The server must still provide those resources in the response; [...]
		// the client may have "forgotten" those resources despite apparently
		// remaining subscribed." (xDS protocol, "Subscribing to Resources")
		e.told = false
		w.dirty[name] = struct{}{}
		w.asked = true
	}
	return added, removed
}

// hold notes what the client still has from an earlier stream: "the
// reconnecting client may tell the server of its known resources to avoid
// resending them". It counts in the first request of a type only.
func (w *watch) hold(versions map[string]string) {
	for name, version := range versions {
		if e := w.names[name]; e != nil {
			e.told, e.sent, e.acked = true, version, version
		}
	}
}

// replace makes names the whole subscription of a state-of-the-world watch.
//
// "The server must resend any newly requested resources, even if it previously
// sent those resources [...] and the resources have not changed since that
// time." (xDS protocol, "How the client specifies what resources to return")
func (w *watch) replace(names []string) (added, removed []string) {
	keep := make(map[string]struct{}, len(names))
	for _, name := range names {
		keep[name] = struct{}{}
		if _, ok := w.names[name]; ok {
			continue
		}
		w.names[name] = &entry{}
		w.dirty[name] = struct{}{}
		w.asked = true
		added = append(added, name)
	}
	for name := range w.names {
		if _, ok := keep[name]; !ok {
			w.drop(name)
			removed = append(removed, name)
		}
	}
	if len(added)+len(removed) > 0 {
		w.order = w.order[:0]
		for name := range w.names {
			w.order = append(w.order, name)
		}
		slices.Sort(w.order)
	}
	return added, removed
}

func (w *watch) drop(name string) {
	delete(w.names, name)
	delete(w.dirty, name)
}

// verdict is what a request says about a reply.
type verdict uint8

const (
	silent   verdict = iota // nothing: it answers no reply that waits for an answer
	accepted                // ACK
	rejected                // NACK
)

// answer credits the reply that r names, and no other: an answer to an older
// reply says nothing about a newer one. Replies older than the one named were
// received before it and are forgotten.
func (w *watch) answer(r *request, now time.Time) verdict {
	i := slices.IndexFunc(w.unanswered, func(d delivery) bool { return d.nonce == r.nonce })
	if i < 0 {
		return silent
	}
	for _, it := range w.unanswered[i].items {
		it.entry.at = now
		it.entry.nack = r.reason
		if !r.rejected {
			it.entry.acked = it.version
		}
	}
	w.unanswered = slices.Delete(w.unanswered, 0, i+1)
	if r.rejected {
		return rejected
	}
	return accepted
}

// mark notes that the content of name changed.
func (w *watch) mark(name string) {
	if _, ok := w.names[name]; ok {
		w.dirty[name] = struct{}{}
	}
}

// ready reports whether next may have a reply.
func (w *watch) ready() bool {
	open := len(w.unanswered) == 0 || w.asked && len(w.unanswered) < maxUnanswered
	return open && len(w.dirty) > 0
}

// next returns the reply that is due under the given nonce, or nil. The error
// is the end of the stream: a state of the world too large for one message.
func (w *watch) next(c *Cache, nonce string, now time.Time) (*reply, error) {
	if !w.ready() {
		return nil, nil
	}
	rep := &reply{typeURL: w.typeURL, nonce: nonce}
	var items []item
	var err error
	switch {
	case w.kind == SotW:
		items, err = w.world(c, rep)
	case c.knows(w.typeURL):
		items = w.changes(c, rep)
	default:
		clear(w.dirty)
	}
	w.asked = false
	if err != nil || items == nil {
		return nil, err
	}
	for _, it := range items {
		it.entry.told, it.entry.sent, it.entry.at = true, it.version, now
	}
	w.unanswered = append(w.unanswered, delivery{nonce, items})
	return rep, nil
}

// world fills rep with all subscribed resources that exist, if any of them
// differs from what was sent. Names that do not exist are left out, and where
// nothing was ever sent their absence is no difference: a server that knows
// nothing yet stays silent, since for some types "a response containing no
// resources means to delete all resources of that type" (xDS protocol,
// "Deleting Resources").
func (w *watch) world(c *Cache, rep *reply) ([]item, error) {
	changed := false
	for name := range w.dirty {
		changed = changed || c.version(w.typeURL, name) != w.names[name].sent
	}
	clear(w.dirty)
	if !changed {
		return nil, nil
	}
	items := make([]item, 0, len(w.order))
	hash := sha256.New()
	size := 0
	for _, name := range w.order {
		it := item{entry: w.names[name]}
		if r := c.get(w.typeURL, name); r != nil {
			it.version = r.version
			rep.resources = append(rep.resources, r)
			size += r.size()
			fmt.Fprintf(hash, "%q %q\n", name, r.version)
		}
		items = append(items, it)
	}
	if size > maxReply {
		return nil, fmt.Errorf("resource_names: %d resources of %s are %d bytes, want at most %d in one response",
			len(rep.resources), quote(w.typeURL), size, maxReply)
	}
	// "The version for a resource type is not a property of an individual xDS
	// stream but rather a property of the resources themselves." (xDS protocol,
	// "ACK/NACK and resource type instance version")
	rep.version = hex.EncodeToString(hash.Sum(nil)[:8])
	return items, nil
}

// changes fills rep with those dirty resources that differ from what was sent,
// as many as one message takes; the rest stays dirty.
//
// "When a resource subscribed to by a client does not exist, the server will
// send a DeltaDiscoveryResponse message that contains that resource's name in
// the removed_resources field." (xDS protocol, "Knowing When a Requested
// Resource Does Not Exist")
func (w *watch) changes(c *Cache, rep *reply) []item {
	names := make([]string, 0, len(w.dirty))
	for name := range w.dirty {
		names = append(names, name)
	}
	slices.Sort(names)
	var items []item
	size := 0
	for _, name := range names {
		it := item{entry: w.names[name]}
		r := c.get(w.typeURL, name)
		if r != nil {
			it.version = r.version
		}
		if it.entry.told && it.entry.sent == it.version {
			delete(w.dirty, name)
			continue
		}
		if r != nil {
			if size += r.size(); size > maxReply && len(rep.resources) > 0 {
				break
			}
			rep.resources = append(rep.resources, r)
		} else {
			rep.removed = append(rep.removed, name)
		}
		delete(w.dirty, name)
		items = append(items, it)
	}
	return items
}
