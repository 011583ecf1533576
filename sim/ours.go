package sim

import (
	"fmt"
	"time"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/hedge"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// tickEvery is how often the daemon decides; it does at once on early reports.
const tickEvery = 250 * time.Millisecond

// epoch is when a world starts, for laws that take a time.Time.
var epoch = time.Unix(1_700_000_000, 0)

// ours is the daemon: the real control.Service, which gets the clients' reports
// and pushes policies to all of them.
type ours struct {
	w       *World
	key     policy.Key
	cfg     control.Config
	service *control.Service
	policy  *policy.Policy // published last; nil: none
	number  uint64
	names   []string // of replicas
	methods []string

	servedAt time.Duration // when replicas report next

	byNumber map[int32]*oursClient
	messages []message // on their way; used again
	free     []int32
	waiting  map[*hedge.Waiter]*call
	down     bool // as of the last tick

	id   uint32  // in its events, among several
	only *client // whose controller it is; nil: everybody's
}

// message is a report on its way to the daemon or, with a policy, a push to the
// clients: to all, or to one.
type message struct {
	report *report.Report
	from   *oursClient
	policy *policy.Policy
	to     *oursClient
}

func newOurs(w *World) law {
	l := &ours{
		w:        w,
		key:      policy.Key{Tenant: policy.DefaultTenant, Service: "sim"},
		cfg:      w.sc.config(),
		byNumber: map[int32]*oursClient{},
		waiting:  map[*hedge.Waiter]*call{},
		methods:  w.sc.methodNames(),
	}
	for i := range w.replicas {
		l.names = append(l.names, fmt.Sprintf("replica-%d", i))
	}
	l.service = control.New(l.key, l.cfg)
	return l
}

func (l *ours) begin() {
	l.w.push(event{at: l.w.now + tickEvery, kind: evLaw, gen: l.id})
}

func (l *ours) happen(e event) {
	switch e.kind {
	case evLaw:
		l.regularTick()
	case evLawClient:
		if cl := l.byNumber[e.ref]; cl != nil {
			cl.look()
			l.w.push(event{at: l.w.now + l.w.sc.cadence/hedge.ReportLooks, kind: evLawClient, ref: e.ref, gen: e.gen})
		}
	case evMessage:
		m := l.messages[e.ref]
		l.messages[e.ref] = message{}
		l.free = append(l.free, e.ref)
		l.receive(m)
	}
}

func (l *ours) post(m message) {
	i := int32(len(l.messages))
	if n := len(l.free); n > 0 {
		i = l.free[n-1]
		l.free = l.free[:n-1]
		l.messages[i] = m
	} else {
		l.messages = append(l.messages, m)
	}
	l.w.push(event{at: l.w.now + l.w.sc.push, kind: evMessage, ref: i, gen: l.id})
}

func (l *ours) receive(m message) {
	switch {
	case m.report != nil:
		if l.w.daemonDown {
			m.from.hold(m.report)
			return
		}
		l.service.Add(epoch.Add(l.w.now), m.report)
		if m.report.Early {
			l.tick()
		}
	case m.to != nil:
		m.to.apply(m.policy)
	default:
		for _, c := range l.clients() {
			c.agent.(*oursClient).apply(m.policy)
		}
	}
}

// clients are those that it serves now.
func (l *ours) clients() []*client {
	if l.only != nil {
		return []*client{l.only}
	}
	return l.w.clients
}

func (l *ours) regularTick() {
	if l.only != nil && l.only.gone {
		return
	}
	l.w.push(event{at: l.w.now + tickEvery, kind: evLaw, gen: l.id})
	if l.policy != nil {
		l.w.result.unwell(l.w.now, len(l.policy.Replicas))
	}
	if l.w.daemonDown {
		l.down = true
		return
	}
	if l.down { // it starts anew, from what it stored
		l.down = false
		l.service = control.New(l.key, l.cfg)
		if l.policy != nil {
			l.service.Restore(l.policy)
			l.service.Published(l.policy)
		}
		for _, c := range l.clients() {
			c.agent.(*oursClient).resend()
		}
	}
	l.reportServed()
	l.tick()
}

func (l *ours) tick() {
	d := l.service.Tick(epoch.Add(l.w.now))
	if err := d.Policy.Validate(); err != nil {
		panic(fmt.Sprintf("sim: the controller made a policy that is not valid: %v", err))
	}
	if l.w.probe.Decided != nil {
		l.w.probe.Decided(l.w.now, &d, func() control.Status { return l.service.Status(epoch.Add(l.w.now)) })
	}
	if !d.Publish {
		return
	}
	l.number++
	p := *d.Policy
	p.Generation = policy.Generation{Epoch: 1, Number: l.number}
	l.policy = &p
	l.service.Published(&p)
	l.post(message{policy: &p})
}

// grant starts the calls whose waiting hedges were granted a token.
func (l *ours) grant(ws []*hedge.Waiter) {
	for _, w := range ws {
		<-w.C
		c := l.waiting[w]
		delete(l.waiting, w)
		l.w.granted(c)
	}
}
