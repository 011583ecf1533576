package sim

// alone is the law of hedged with a controller in each client, which knows its own
// reports only: what a library can do without a daemon.
type alone struct {
	w    *World
	laws []*ours // by client of all there ever were
}

func newAlone(w *World) law { return &alone{w: w} }

func (a *alone) begin() {}

func (a *alone) join(c *client) agent {
	l := newOurs(a.w).(*ours)
	l.id, l.only = uint32(len(a.laws)), c
	a.laws = append(a.laws, l)
	l.begin()
	return l.join(c)
}

func (a *alone) happen(e event) { a.laws[e.gen].happen(e) }
