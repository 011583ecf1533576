package xds

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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
// explicitly passes a closed gate, up to maxUnanswered replies, and so does what
// is urgent, at any time.
type watch struct {
	typeURL string
	kind    StreamKind
	legacy  bool // no names at all stand for all names
	all     *all // the wildcard subscription; nil: none
	hadAll  bool // on this stream

	names  map[string]*entry
	dirty  []*entry // each once; some may be dropped
	asked  bool     // something dirty was asked for by a request
	urgent bool     // something dirty must not wait for an answer

	sum        uint64     // of the hashes of what was sent by name; SotW only
	unanswered []delivery // oldest first

	spread func(*resource) // is told of a publish whose last client this was
}

// maxUnanswered is how many replies of one type may wait for an answer and still
// be remembered. Pushes keep to one; the rest lets subscription changes be
// answered at once.
const maxUnanswered = 8

// maxReply is the most content, in bytes, that one reply carries: gRPC clients
// refuse messages over 4 MiB unless told otherwise. The rest is for the type, the
// nonce and the version.
const maxReply = 4<<20 - 4<<10

const maxInt = int(^uint(0) >> 1)

// entry is one subscribed name.
type entry struct {
	name    string
	dirty   bool   // it stands in the list of these
	dropped bool   // no more subscribed
	told    bool   // something was said about it since the client asked
	sent    string // version sent last; empty: none, or said to be absent
	acked   string // version accepted last; empty: none
	nack    string // why it was rejected last; empty: it was not
	hash    uint64 // of what was sent last; SotW only
	at      time.Time

	answered *resource // what the last answer was about; nil: absence, or none yet
	owed     *resource // a publish that waits for this client's answer; nil: none does
}

// delivery is a reply that the client has not answered.
type delivery struct {
	nonce string
	items []item
	all   uint64 // revision up to which all resources were sent, if they were
	at    time.Time
}

type item struct {
	entry   *entry
	content *resource // nil: absent
}

func (it item) version() string {
	if it.content == nil {
		return ""
	}
	return it.content.version
}

func newWatch(typeURL string, kind StreamKind, legacy bool, spread func(*resource)) *watch {
	return &watch{typeURL: typeURL, kind: kind, legacy: legacy, spread: spread}
}

// whole reports whether each response carries the whole set.
//
// "In the SotW protocol variants, all resource types except for Listener and
// Cluster are grouped into responses in the same way as in the incremental
// protocol variants. However, Listener and Cluster resource types are handled
// differently: the server must include the complete state of the world" (xDS
// protocol, "Grouping Resources into Responses")
func (w *watch) whole() bool {
	return w.kind == SotW && (w.typeURL == typeListener || w.typeURL == typeCluster)
}

const (
	typeListener = "type.googleapis.com/envoy.config.listener.v3.Listener"
	typeCluster  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
)

// subscribe applies what r says about names, whatever nonce it carries, and
// returns the names that are new and those that are gone, the wildcard among them.
//
// "The server must honor changes to the subscription state even if the nonce is
// stale. The nonce may be used to correlate an ack/nack with a server response,
// but should not be used to reject stale requests." (xDS protocol, "Incremental
// xDS"; here the rule holds for the state of the world too, where a change that
// is dropped may never be repeated.)
func (w *watch) subscribe(r *request) (added, removed []string) {
	subscribe, unsubscribe := r.subscribe, r.unsubscribe
	if w.kind == SotW {
		subscribe, unsubscribe = w.difference(r.names)
	}
	// "if the client sends a request for a given resource type but has never
	// explicitly subscribed to any resource names [...] the server should treat
	// that identically to how it would treat the client having explicitly
	// subscribed to "*". However, once the client does explicitly subscribe to a
	// resource name [...] then this legacy semantic is no longer available" (xDS
	// protocol, "How the client specifies what resources to return")
	if len(r.names)+len(r.subscribe) > 0 {
		w.legacy = false
	} else if w.legacy && w.all == nil {
		subscribe = []string{wildcard}
	}
	for _, name := range unsubscribe {
		if w.drop(name) {
			removed = append(removed, name)
		}
	}
	for _, name := range subscribe {
		if w.add(name, r.held) {
			added = append(added, name)
		}
	}
	return added, removed
}

// difference is what changes when names become the whole subscription of a
// state-of-the-world watch.
//
// "When the client sends a new request that changes the set of resources being
// requested, the server must resend any newly requested resources, even if it
// previously sent those resources [...] and the resources have not changed since
// that time." (xDS protocol, as above)
func (w *watch) difference(names []string) (subscribe, unsubscribe []string) {
	if len(names) == 0 && w.legacy {
		return nil, nil
	}
	keep := make(map[string]struct{}, len(names))
	for _, name := range names {
		if _, twice := keep[name]; !twice && !w.has(name) {
			subscribe = append(subscribe, name)
		}
		keep[name] = struct{}{}
	}
	if _, ok := keep[wildcard]; !ok && w.all != nil {
		unsubscribe = append(unsubscribe, wildcard)
	}
	for name := range w.names {
		if _, ok := keep[name]; !ok {
			unsubscribe = append(unsubscribe, name)
		}
	}
	return subscribe, unsubscribe
}

func (w *watch) has(name string) bool {
	if name == wildcard {
		return w.all != nil
	}
	return w.names[name] != nil
}

// add subscribes to a name, or again to one: "The server must still provide those
// resources in the response; [...] the client may have "forgotten" those
// resources despite apparently remaining subscribed." (xDS protocol, "Subscribing
// to Resources")
//
// held is what the client still has from an earlier stream: "the reconnecting
// client may tell the server of its known resources to avoid resending them". It
// counts for what is new on this stream; a client may spread it over requests.
func (w *watch) add(name string, held map[string]string) (added bool) {
	w.asked = true
	if name == wildcard {
		added = w.all == nil
		if !added {
			w.all.settle(w)
		}
		w.all = newAll(!w.hadAll, held)
		w.hadAll = true
		return added
	}
	if w.names == nil {
		w.names = map[string]*entry{}
	}
	e := w.names[name]
	if added = e == nil; added {
		e = &entry{name: name}
		w.names[name] = e
	}
	e.told = false
	if version := held[name]; added && version != "" {
		e.told, e.sent, e.acked = true, version, version
	}
	w.mark(e)
	return added
}

// drop ends a subscription and reports whether there was one.
func (w *watch) drop(name string) bool {
	if name == wildcard {
		w.legacy = false
		if w.all == nil {
			return false
		}
		w.all.settle(w)
		w.all = nil
		return true
	}
	e := w.names[name]
	if e == nil {
		return false
	}
	delete(w.names, name)
	e.dropped = true
	w.settle(e.owed)
	w.sum -= e.hash
	if w.all != nil && w.kind == Delta {
		// The wildcard still covers the name, so the client cannot know whether it
		// is to keep the resource: it is told.
		w.all.repeat = append(w.all.repeat, name)
		w.asked = true
	}
	return true
}

// mark notes that the content of a name may differ from what was sent.
func (w *watch) mark(e *entry) {
	if e.dirty {
		return
	}
	e.dirty = true
	w.dirty = append(w.dirty, e)
	if len(w.dirty) > 2*len(w.names) { // by names that come and go while the gate is closed
		w.dirty = slices.DeleteFunc(w.dirty, func(e *entry) bool { return e.dropped })
	}
}

// clean takes the first n entries off the list.
func (w *watch) clean(n int) {
	for _, e := range w.dirty[:n] {
		e.dirty = false
	}
	w.dirty = slices.Delete(w.dirty, 0, n)
}

// changed notes new content of a name that is subscribed to.
func (w *watch) changed(ch change) {
	e := w.names[ch.name]
	w.mark(e)
	w.urgent = w.urgent || ch.urgent
	switch {
	case ch.content == nil:
	case e.answered == ch.content: // it was sent before the fan-out came
		w.settle(ch.content)
	default:
		e.owed = ch.content
	}
}

// changedAny notes a change for the wildcard.
func (w *watch) changedAny(ch change) {
	w.all.changed(ch)
	w.urgent = w.urgent || ch.urgent
}

// settle takes the client off those whose answer a publish waits for.
func (w *watch) settle(content *resource) {
	if content != nil && content.spread.answered() {
		w.spread(content)
	}
}

// forget settles everything, at the end of the stream.
func (w *watch) forget() {
	for _, e := range w.names {
		w.settle(e.owed)
	}
	if w.all != nil {
		w.all.settle(w)
	}
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
	d := w.unanswered[i]
	for _, it := range d.items {
		it.entry.at = now
		it.entry.nack = r.reason
		if !r.rejected {
			it.entry.acked = it.version()
		}
		it.entry.answered = it.content
		if it.content == it.entry.owed {
			w.settle(it.entry.owed)
			it.entry.owed = nil
		}
	}
	w.unanswered = slices.Delete(w.unanswered, 0, i+1)
	if d.all > 0 && w.all != nil {
		rev := d.all
		if !slices.ContainsFunc(w.unanswered, func(d delivery) bool { return d.all > 0 }) {
			rev = w.all.sent // what came after it was nothing to be sent
		}
		w.all.answer(rev, r, now, w)
	}
	if r.rejected {
		return rejected
	}
	return accepted
}

// ready reports whether next may have a reply.
func (w *watch) ready() bool {
	open := len(w.unanswered) == 0 || w.urgent || w.asked && len(w.unanswered) < maxUnanswered
	return open && (len(w.dirty) > 0 || w.all != nil && w.all.behind())
}

// next returns the reply that is due under the given nonce, or nil. The error
// is the end of the stream: a state of the world too large for one message.
func (w *watch) next(c *Cache, nonce string, now time.Time) (*reply, error) {
	if !w.ready() {
		return nil, nil
	}
	rep := &reply{typeURL: w.typeURL, nonce: nonce}
	d := delivery{nonce: nonce, at: now}
	var due bool
	var err error
	switch {
	case !c.knows(w.typeURL):
		w.clean(len(w.dirty)) // and silence: its first publish marks what is watched
		if w.all != nil {
			w.all.wait()
		}
	case w.whole():
		due = w.set(c, rep, &d)
	default:
		due = w.some(c, rep, &d)
	}
	w.asked, w.urgent = false, false
	if size := rep.size(); w.kind == SotW && size > maxReply {
		err = fmt.Errorf("resource_names: %d resources of %s are %d bytes, want at most %d in one response",
			len(rep.resources), quote(w.typeURL), size, maxReply)
	}
	if err != nil || !due {
		return nil, err
	}
	for _, it := range d.items {
		e := it.entry
		e.told, e.sent, e.at = true, it.version(), now
	}
	if w.kind == SotW {
		// "The version for a resource type is not a property of an individual xDS
		// stream but rather a property of the resources themselves." (xDS protocol,
		// "ACK/NACK and resource type instance version")
		sum := w.sum
		if w.all != nil {
			_, sum = c.revision(w.typeURL)
		}
		rep.version = strconv.FormatUint(sum, 16)
	}
	w.unanswered = append(w.unanswered, d)
	if len(w.unanswered) > maxUnanswered { // by what is urgent only
		w.unanswered = slices.Delete(w.unanswered, 0, 1)
	}
	return rep, nil
}

// set fills rep with all subscribed resources that exist, if any of them differs
// from what was sent. Where nothing was ever sent, absence is no difference: a
// server that knows nothing yet stays silent, since "a response containing no
// resources means to delete all resources of that type" (xDS protocol, "Deleting
// Resources").
func (w *watch) set(c *Cache, rep *reply, d *delivery) (due bool) {
	for _, e := range w.dirty {
		due = due || !e.dropped && item{e, c.get(w.typeURL, e.name)}.version() != e.sent
	}
	w.clean(len(w.dirty))
	if w.all != nil {
		content, rev, _ := c.state(w.typeURL)
		due = w.all.advance(rev, len(content) > 0) || due
		if due {
			rep.resources, d.all = content, rev
		}
	}
	if !due {
		return false
	}
	for name, e := range w.names {
		it := item{e, c.get(w.typeURL, name)}
		w.count(it)
		d.items = append(d.items, it)
		if it.content != nil && w.all == nil {
			rep.resources = append(rep.resources, it.content)
		}
	}
	slices.SortFunc(rep.resources, byName)
	return true
}

// some fills rep with those resources that differ from what was sent, and in
// delta as many as one message takes; the rest stays dirty.
//
// "When a resource subscribed to by a client does not exist, the server will
// send a DeltaDiscoveryResponse message that contains that resource's name in
// the removed_resources field." (xDS protocol, "Knowing When a Requested
// Resource Does Not Exist"). In the state of the world "the API provides no
// mechanism for the server to tell the client that resources have been deleted"
// (as above, "Deleting Resources"), so that nothing is said.
func (w *watch) some(c *Cache, rep *reply, d *delivery) (due bool) {
	room := maxInt
	if w.kind == Delta {
		room = maxReply
	}
	slices.SortFunc(w.dirty, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	done := 0
	for _, e := range w.dirty {
		if e.dropped {
			done++
			continue
		}
		it := item{e, c.get(w.typeURL, e.name)}
		if e.told && e.sent == it.version() {
			done++
			if e.owed != nil && e.acked == e.owed.version { // it was there before, and is again
				w.settle(e.owed)
				e.owed = nil
			}
			continue
		}
		n := cost(e.name, it.content)
		if n > room {
			room = 0
			break
		}
		room -= n
		done++
		w.count(it)
		rep.add(e.name, it.content, w.kind)
		d.items = append(d.items, it)
	}
	w.clean(done)
	if w.kind == SotW {
		for _, it := range d.items {
			if it.content == nil { // told nothing
				it.entry.told, it.entry.sent = true, ""
			}
		}
		d.items = slices.DeleteFunc(d.items, func(it item) bool { return it.content == nil })
	}
	if w.all != nil {
		due = w.all.next(w, c, rep, room)
		d.all = w.all.sent
	}
	return due || len(d.items) > 0
}

// count keeps the sum of what a state-of-the-world client was sent.
func (w *watch) count(it item) {
	if w.kind != SotW {
		return
	}
	w.sum -= it.entry.hash
	it.entry.hash = 0
	if it.content != nil {
		it.entry.hash = it.content.hash
	}
	w.sum += it.entry.hash
}

// subscribed returns all names, the wildcard among them.
func (w *watch) subscribed() []string {
	names := slices.Collect(maps.Keys(w.names))
	if w.all != nil {
		names = append(names, wildcard)
	}
	return names
}

func byName(a, b *resource) int { return strings.Compare(a.name, b.name) }
