package sim

import (
	"strings"
	"time"
)

func (p *parser) title() error {
	p.s.Title = strings.Join(p.words, " ")
	p.words = nil
	if p.s.Title == "" {
		return p.bad("the text is missing")
	}
	return nil
}

func (p *parser) clients() error {
	n := 0
	if err := p.integer("number", &n, 1, maxClients); err != nil {
		return err
	}
	if p.timed {
		p.change(func(w *World) { w.setClients(n) })
		return nil
	}
	p.s.clients = n
	if p.option("life") {
		return p.time("life", &p.s.clientLife, time.Second, maxDuration)
	}
	return nil
}

func (p *parser) arrivals() error {
	how, err := p.choice("kind", "poisson", "steady", "closed")
	if err != nil {
		return err
	}
	a := &p.s.arrivals
	if how == 2 {
		if p.timed {
			return p.bad("closed cannot come in the course of a run")
		}
		a.rate = 0
		return p.integer("callers", &a.closed, 1, 1e5)
	}
	rate, steady := 0.0, how == 1
	if err := p.real("rate", &rate, 0, maxRate); err != nil {
		return err
	}
	if !p.timed {
		a.rate, a.steady = rate, steady
		return nil
	}
	if a.closed > 0 {
		return p.bad("the callers of a closed loop have no rate")
	}
	p.change(func(w *World) {
		w.load.rate, w.load.steady = rate, steady
		w.restart()
	})
	return nil
}

func (p *parser) bursts() error {
	a := &p.s.arrivals
	return first(
		func() error { return p.real("rate", &a.burstRate, 1e-3, maxRate) },
		func() error { return p.keyword("every") },
		func() error { return p.time("time", &a.burstEvery, time.Millisecond, maxDuration) },
		func() error { return p.keyword("for") },
		func() error { return p.time("time", &a.burstFor, time.Millisecond, maxDuration) },
	)
}

func (p *parser) daily() error {
	a := &p.s.arrivals
	return first(
		func() error { return p.share("share", &a.swing, .001, 1) },
		func() error { return p.keyword("period") },
		func() error { return p.time("period", &a.period, time.Second, maxDuration) },
	)
}

func (p *parser) latency() error {
	m, err := p.model()
	if err != nil {
		return err
	}
	if p.timed {
		p.change(func(w *World) { w.latency = m })
		return nil
	}
	p.s.latency = m
	return nil
}

func (p *parser) model() (latencyModel, error) {
	how, err := p.choice("model", "constant", "uniform", "exponential", "lognormal", "pareto", "file")
	if err != nil {
		return nil, err
	}
	var a, b time.Duration
	var shape float64
	switch how {
	case 0:
		err = p.time("latency", &a, 0, maxTime)
		return constant(a), err
	case 1:
		err = first(
			func() error { return p.time("least", &a, 0, maxTime) },
			func() error { return p.time("most", &b, a, maxTime) },
		)
		return uniform{a, b}, err
	case 2:
		err = p.time("mean", &a, 1, maxTime)
		return exponential{a}, err
	case 3:
		err = first(
			func() error { return p.time("median", &a, 1, maxTime) },
			func() error { return p.real("sigma", &shape, 0, 3) },
		)
		return lognormal{a, shape}, err
	case 4:
		err = first(
			func() error { return p.real("alpha", &shape, .5, 100) },
			func() error { return p.time("least", &a, 1, maxTime) },
		)
		return pareto{shape, a}, err
	default:
		return p.file()
	}
}

func (p *parser) file() (latencyModel, error) {
	name, err := p.word("path")
	if err != nil {
		return nil, err
	}
	if p.open == nil {
		return nil, p.bad("%.80q: %v", name, errNoFile)
	}
	text, err := p.open(name)
	if err != nil {
		return nil, p.bad("%v", err)
	}
	return parseEmpirical(name, text)
}

func (p *parser) stall() error {
	kinds := []string{"call", "shared", "replica", "all", "off"}
	how, err := p.choice("kind", kinds...)
	if err != nil {
		return err
	}
	var s stall
	if how != 4 {
		err = first(
			func() error { return p.share("share", &s.share, 0, 1) },
			func() error { return p.time("time", &s.extra, 0, maxTime) },
		)
	}
	if err == nil && (how == 2 || how == 3) {
		err = first(
			func() error { return p.keyword("every") },
			func() error { return p.time("time", &s.every, time.Millisecond, maxDuration) },
			func() error { return p.keyword("for") },
			func() error { return p.time("time", &s.last, time.Millisecond, maxDuration) },
		)
	}
	if err != nil {
		return err
	}
	p.change(func(w *World) { w.setStall(kinds[how], s) })
	return nil
}

func (p *parser) method() error {
	var m methodShare
	left := 1.0
	for _, other := range p.s.methods {
		left -= other.share
	}
	if len(p.s.methods) == maxMoreMethods {
		return p.bad("there are %d already", maxMoreMethods)
	}
	p.s.methods = append(p.s.methods, methodShare{})
	return first(
		func() error { return p.share("share", &m.share, .001, left) },
		func() error { return p.real("factor", &m.factor, .001, 1000) },
		func() error { p.s.methods[len(p.s.methods)-1] = m; return nil },
	)
}

func (p *parser) zones() error {
	return first(
		func() error { return p.share("share", &p.s.zones.share, 0, 1) },
		func() error { return p.keyword("far") },
		func() error { return p.time("time", &p.s.zones.far, 1, 10*time.Second) },
	)
}

func (p *parser) liars() error {
	if err := p.share("share", &p.s.liars, 0, 1); err != nil {
		return err
	}
	how, err := p.choice("lie", "x0.01", "x100", "random", "counts")
	p.s.lie = lie(how)
	return err
}

func (p *parser) replicas() error {
	if err := p.integer("number", &p.s.replicas, 1, maxReplicas); err != nil {
		return err
	}
	if p.option("workers") {
		return p.integer("workers", &p.s.workers, 1, 1e5)
	}
	return nil
}

func (p *parser) routing() error {
	how, err := p.choice("kind", "random", "round-robin", "shortest-queue", "better-of-two", "peak-ewma")
	p.s.routing = routing(how)
	return err
}

func (p *parser) cancel() error {
	how, err := p.choice("kind", "at-once", "queued", "never")
	p.s.cancellation = cancellation(how)
	return err
}

func (p *parser) network() error {
	var n network
	if err := p.time("time", &n.way, 0, 10*time.Second); err != nil {
		return err
	}
	if p.option("jitter") {
		if err := p.time("jitter", &n.jitter, 0, 10*time.Second); err != nil {
			return err
		}
	}
	p.change(func(w *World) { w.network = n })
	return nil
}

func (p *parser) slowdown() error {
	factor, replica := 0.0, -1
	if err := p.real("factor", &factor, .001, 1e6); err != nil {
		return err
	}
	if p.option("replica") {
		if err := p.integer("replica", &replica, 0, maxReplicas-1); err != nil {
			return err
		}
	}
	if replica < 0 {
		p.change(func(w *World) { w.slow.factor = factor })
		return nil
	}
	p.named = append(p.named, namedReplica{replica, p.number})
	p.change(func(w *World) { w.slow.byReplica[replica] = factor })
	return nil
}

func (p *parser) freeze() error {
	var d time.Duration
	if err := p.time("time", &d, time.Millisecond, maxTime); err != nil {
		return err
	}
	p.change(func(w *World) { w.freeze(d) })
	return nil
}

func (p *parser) fail() error {
	var share float64
	after := time.Millisecond
	if err := p.share("share", &share, 0, 1); err != nil {
		return err
	}
	if p.option("after") {
		if err := p.time("time", &after, 0, maxTime); err != nil {
			return err
		}
	}
	p.change(func(w *World) { w.slow.failing, w.slow.failAfter = share, after })
	return nil
}

func (p *parser) reports() error {
	if err := p.time("time", &p.s.cadence, 100*time.Millisecond, time.Minute); err != nil {
		return err
	}
	if p.option("loss") {
		return p.share("loss", &p.s.loss, 0, 1)
	}
	return nil
}

func (p *parser) daemon() error {
	how, err := p.choice("state", "up", "down")
	if err != nil {
		return err
	}
	p.change(func(w *World) { w.daemonDown = how == 1 })
	return nil
}

func (p *parser) servers() error {
	how, err := p.choice("state", "report", "silent")
	p.s.silent = how == 1
	return err
}
