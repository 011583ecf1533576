package xds

import "time"

// wildcard is the name that stands for all names of a type.
const wildcard = "*"

// all is the wildcard subscription of a watch. The cache lists resources by their
// last change, so that one number says what was sent.
type all struct {
	sent   uint64 // revision up to which everything was sent
	newest uint64 // revision of the last change that the watch was told of
	began  bool   // a reply carried something, or said that there is nothing
	synced bool   // all that there was at the start was sent
	quiet  bool   // the type was unknown when the watch looked
	again  bool   // subscribed before on this stream

	held   map[string]string // what the client says it has; until synced
	repeat []string          // names to be told again, changed or not

	acked   uint64 // revision accepted last
	nack    string // why the last reply was rejected; empty: it was not
	at      time.Time
	owed    *resource // the newest publish that waits for this client's answer
	owedRev uint64
}

// newAll begins a subscription; only a first one counts what the client holds.
func newAll(first bool, held map[string]string) *all {
	a := &all{again: !first}
	if first && len(held) > 0 {
		a.held = make(map[string]string, len(held))
		for name, version := range held {
			a.held[name] = version
		}
	}
	return a
}

// behind reports whether there may be something to send.
func (a *all) behind() bool {
	return a.newest > a.sent || len(a.repeat) > 0 || !a.synced && !a.quiet
}

// wait says that the type is unknown: silence, until it is published.
func (a *all) wait() { a.quiet, a.newest, a.repeat = true, 0, nil }

// changed notes a change of some resource.
func (a *all) changed(ch change) {
	a.newest = max(a.newest, ch.rev)
	a.quiet = false
	if ch.content != nil {
		a.owed, a.owedRev = ch.content, ch.rev
	}
}

// advance moves to a revision of which the whole set is to be sent, and reports
// whether it has to be: not where nothing was ever sent and there is nothing.
func (a *all) advance(rev uint64, some bool) (due bool) {
	due = (rev > a.sent || !a.synced) && (a.began || some)
	a.sent, a.newest, a.synced, a.repeat = rev, rev, true, nil
	a.began = a.began || due
	return due
}

// next adds to rep what changed since the last one, as far as room goes.
func (a *all) next(w *watch, c *Cache, rep *reply, room int) (due bool) {
	before := a.sent
	again := a.tell(w, c, rep, &room)
	list, complete := c.changes(w.typeURL, a.sent, room)
	initial := !a.synced
	for _, ch := range list {
		a.sent = ch.rev
		held, has := a.held[ch.name]
		delete(a.held, ch.name)
		_, told := again[ch.name]
		switch {
		case told || w.names[ch.name] != nil: // by name
		case initial && has && ch.content != nil && held == ch.content.version:
		case initial && !a.again && !has && ch.content == nil: // gone before the client could know it
		default:
			rep.add(ch.name, ch.content, w.kind)
		}
	}
	if complete && len(a.repeat) == 0 {
		a.newest, a.synced = a.sent, true
		for name := range a.held {
			if w.names[name] == nil {
				rep.add(name, nil, w.kind)
			}
		}
		a.held = nil
	}
	// Even when there is nothing: a client that waits for everything has to learn
	// that this was it. In the state of the world that would mean to drop everything.
	due = rep.carries() || w.kind == Delta && !a.began
	a.began = a.began || due
	if !due && a.acked == before { // the client has all of it already
		a.acked = a.sent
	}
	return due
}

// tell adds the names that are to be told again, and returns them.
func (a *all) tell(w *watch, c *Cache, rep *reply, room *int) map[string]struct{} {
	if len(a.repeat) == 0 {
		return nil
	}
	told := map[string]struct{}{}
	for len(a.repeat) > 0 {
		name := a.repeat[0]
		content := c.get(w.typeURL, name)
		n := cost(name, content)
		if n > *room {
			*room = 0
			break
		}
		a.repeat = a.repeat[1:]
		if _, twice := told[name]; !twice && w.names[name] == nil {
			*room -= n
			told[name] = struct{}{}
			rep.add(name, content, w.kind)
		}
	}
	return told
}

// answer credits the reply that carried everything up to rev.
func (a *all) answer(rev uint64, r *request, now time.Time, w *watch) {
	a.at, a.nack = now, r.reason
	if !r.rejected {
		a.acked = rev
	}
	if a.owedRev <= rev {
		a.settle(w)
	}
}

func (a *all) settle(w *watch) {
	w.settle(a.owed)
	a.owed = nil
}
