package control

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

const (
	testMethod = "/shop.Cart/Get"
	slice      = 10 * time.Millisecond
)

var epoch = time.Unix(1_700_000_000, 0)

func configured() Config {
	c := DefaultConfig()
	c.Configured = true
	return c
}

// world is a small fleet in virtual time: clients that hedge by the policy they
// got, replicas with a latency each, and a daemon that ticks and publishes.
type world struct {
	svc      *Service
	now      time.Time
	rng      *rand.Rand
	clients  []*worldClient
	replicas []string
	rps      float64 // of all clients
	late     time.Duration
	latency  func(replica string) time.Duration
	fails    func() bool          // may be nil
	stalls   func() time.Duration // of a call, on every copy; may be nil

	policy    *policy.Policy
	number    uint64
	published []change
	pending   map[int64][]func() // by slice of time: what ends then
	nextTick  time.Time
	onTick    func(Decision)
	picked    map[string]int
}

type change struct {
	at     time.Time
	policy *policy.Policy
}

type worldClient struct {
	id         string
	report     *report.Report
	started    time.Time // of report
	nextReport time.Time
	owed       float64 // calls
	tokens     float64
	active     bool
	sequence   uint64
}

func newWorld(cfg Config, clients int, rps float64, replicas int, latency func(w *world, replica string) time.Duration) *world {
	w := &world{
		svc:     New(policy.Key{Tenant: policy.DefaultTenant, Service: "cart"}, cfg),
		now:     epoch,
		rng:     rand.New(rand.NewPCG(1, 2)),
		rps:     rps,
		pending: map[int64][]func(){},
		picked:  map[string]int{},
	}
	w.latency = func(r string) time.Duration { return latency(w, r) }
	w.setReplicas(replicas)
	for i := range clients {
		c := &worldClient{id: fmt.Sprintf("client-%d", i)}
		w.clients = append(w.clients, c)
		w.begin(c)
		c.nextReport = w.now.Add(time.Duration(float64(i+1) / float64(clients) * float64(time.Second)))
	}
	return w
}

func (w *world) setReplicas(n int) {
	w.replicas = nil
	for i := range n {
		w.replicas = append(w.replicas, fmt.Sprintf("replica-%d", i))
	}
}

func (w *world) begin(c *worldClient) {
	c.started = w.now
	c.sequence++
	c.report = &report.Report{
		Source:   report.Source{ID: c.id, Incarnation: 1},
		Sequence: c.sequence,
		Methods:  map[string]*report.Method{},
	}
	if w.policy != nil { // what is in force when the interval begins
		c.report.Generation = w.policy.Generation
	}
}

func (c *worldClient) method() *report.Method {
	m := c.report.Methods[testMethod]
	if m == nil {
		m = &report.Method{Replicas: map[string]*report.Replica{}}
		c.report.Methods[testMethod] = m
	}
	return m
}

func (c *worldClient) replica(name string) *report.Replica {
	m := c.method()
	r := m.Replicas[name]
	if r == nil {
		r = &report.Replica{}
		m.Replicas[name] = r
	}
	return r
}

// run lets d pass.
func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(slice) {
		at := w.now.UnixNano() / int64(slice)
		for _, ends := range w.pending[at] {
			ends()
		}
		delete(w.pending, at)
		tick := false
		for _, c := range w.clients {
			c.owed += w.rps / float64(len(w.clients)) * slice.Seconds()
			for ; c.owed >= 1; c.owed-- {
				w.call(c)
			}
			early := false
			if m := c.report.Methods[testMethod]; m != nil && w.now.Sub(c.started) >= 200*time.Millisecond {
				early = m.Calls >= 20 && float64(m.Eligible) > .2*float64(m.Calls)
			}
			if early || !w.now.Before(c.nextReport) {
				c.report.Interval = w.now.Sub(c.started)
				c.report.Early = early
				w.svc.Add(w.now, c.report)
				if !early {
					c.nextReport = c.nextReport.Add(time.Second)
				}
				tick = tick || early
				w.begin(c)
			}
		}
		if tick || !w.now.Before(w.nextTick) {
			w.tick()
		}
	}
}

func (w *world) tick() {
	if !w.now.Before(w.nextTick) {
		w.nextTick = w.now.Add(250 * time.Millisecond)
	}
	d := w.svc.Tick(w.now)
	if err := d.Policy.Validate(); err != nil {
		panic(err)
	}
	if d.Publish {
		w.number++
		p := *d.Policy
		p.Generation = policy.Generation{Epoch: 1, Number: w.number}
		w.policy = &p
		w.svc.Published(&p)
		w.published = append(w.published, change{w.now, &p})
	}
	if w.onTick != nil {
		w.onTick(d)
	}
}

func (w *world) pick() string {
	for {
		r := w.replicas[w.rng.IntN(len(w.replicas))]
		if w.policy != nil {
			if p, out := w.policy.Replicas[r]; out && w.rng.Float64() >= p.Share {
				continue
			}
		}
		w.picked[r]++
		return r
	}
}

func (w *world) after(d time.Duration, f func()) {
	at := w.now.Add(max(d, slice)).UnixNano() / int64(slice)
	w.pending[at] = append(w.pending[at], f)
}

// forever is the latency of a replica that never answers.
const forever = time.Hour

func (w *world) call(c *worldClient) {
	m := c.method()
	m.Calls++
	m.Safe++
	primary := w.pick()
	x := w.latency(primary)
	every := time.Duration(0)
	if w.stalls != nil {
		every = w.stalls()
		x += every
	}
	if w.fails != nil && w.fails() {
		m.Failures++
		c.replica(primary).Failed++
		return
	}
	var p policy.Method
	active := false
	if w.policy != nil {
		p, _ = w.policy.Method(testMethod)
		active = w.policy.Mode == policy.ModeActive
		if active {
			if !c.active {
				c.active, c.tokens = true, w.policy.Budget.Start
			}
			c.tokens = min(c.tokens+w.policy.Budget.Ratio, w.policy.Budget.Burst)
		}
	}
	const deadline = 2 * time.Second
	d := p.Delay + w.late
	if p.Delay == 0 || x <= d {
		w.after(x, func() { c.replica(primary).Primary.Completed.Record(x) })
		return
	}
	w.after(d, func() { c.method().Eligible++ })
	y, second := forever, ""
	if active && p.Probability > 0 && (p.Probability >= 1 || w.rng.Float64() < p.Probability) && c.tokens >= 1 {
		for second = w.pick(); second == primary && len(w.replicas) > 1; second = w.pick() {
		}
		c.tokens--
		y = w.latency(second) + every
		w.after(d, func() { c.method().Hedges++ })
	}
	switch {
	case min(x, d+y) > deadline:
		w.after(deadline, func() {
			c.method().Failures++
			c.replica(primary).Primary.Censored.Record(deadline)
		})
	case x <= d+y:
		w.after(x, func() {
			c.replica(primary).Primary.Completed.Record(x)
			if second != "" {
				c.replica(second).Hedge.Censored.Record(x - d)
			}
		})
	default:
		w.after(d+y, func() {
			c.method().Wins++
			c.replica(primary).Primary.Censored.Record(d + y)
			c.replica(second).Hedge.Completed.Record(y)
		})
	}
}

func (w *world) delay() time.Duration {
	p, _ := w.policy.Method(testMethod)
	return p.Delay
}

// pushes counts policies published since.
func (w *world) pushes(since time.Time) int {
	n := 0
	for _, c := range w.published {
		if c.at.After(since) {
			n++
		}
	}
	return n
}

// uniform is the seed experiment's latency: 5-15 ms times scale, and a stall of
// 1 s once in a hundred.
func (w *world) uniform(scale float64) time.Duration {
	if w.rng.Float64() < .01 {
		return time.Second
	}
	return time.Duration(scale * (5 + 10*w.rng.Float64()) * float64(time.Millisecond))
}

func steadyUniform(w *world, _ string) time.Duration { return w.uniform(1) }

// within fails the test unless lo <= got <= hi.
func within[T int | uint64 | float64 | time.Duration](t *testing.T, what string, got, lo, hi T) {
	t.Helper()
	if got < lo || got > hi {
		t.Errorf("%s: got %v, want %v to %v", what, got, lo, hi)
	}
}
