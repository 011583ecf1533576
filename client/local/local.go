// Package local is the daemon's law inside the process that hedges: a
// client.Controller on control.Service, for those who have no daemon yet, or one
// process only.
//
//	hedging, err := client.New(client.Options{Controller: local.New(local.Options{})})
//
// It knows this process's calls and nobody else's: the budget holds for this
// process, not for a fleet; a process that starts is cold, and one with few calls
// stays so. There is no operator's override, and nothing is stored. Everything
// else is as with the daemon. To go over to one, give client.Options.Daemon in
// its place.
package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// tickEvery is how often each service is decided on, as control.Service.Tick asks.
const tickEvery = 250 * time.Millisecond

// Options say what is decided on. The zero value hedges every service.
type Options struct {
	// Config returns the configuration of a service that the client uses. It is
	// called once for each service. One that does not validate is not used: the
	// service is not hedged, and the client logs why and counts a refused report.
	// Nil: control.DefaultConfig, configured, for all.
	Config func(service policy.Key) control.Config
}

// Controller is a client.Controller. It serves one client.Client, whose methods
// call it from any goroutine.
type Controller struct {
	config func(policy.Key) control.Config
	now    chan struct{} // size 1: decide at once
	epoch  uint64        // of the policies' generations

	mu      sync.Mutex
	asked   []policy.Key     // services since the last look
	reports []*report.Report // likewise
}

// New returns a Controller for client.Options.
func New(o Options) *Controller {
	if o.Config == nil {
		o.Config = func(policy.Key) control.Config {
			c := control.DefaultConfig()
			c.Configured = true
			return c
		}
	}
	return &Controller{config: o.Config, now: make(chan struct{}, 1), epoch: uint64(time.Now().UnixMilli())}
}

// Run implements client.Controller.
func (c *Controller) Run(ctx context.Context, l client.Listener) {
	r := &run{controller: c, listener: l, services: map[policy.Key]*control.Service{}}
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-c.now:
		}
		r.decide(time.Now())
	}
}

// Subscribe implements client.Controller.
func (c *Controller) Subscribe(service policy.Key) {
	c.mu.Lock()
	c.asked = append(c.asked, service)
	c.mu.Unlock()
	c.wake()
}

// Report implements client.Controller. It keeps every report until Run has read
// it, at most a tick later.
func (c *Controller) Report(r *report.Report) (dropped uint64) {
	c.mu.Lock()
	c.reports = append(c.reports, r)
	c.mu.Unlock()
	if r.Early {
		c.wake()
	}
	return 0
}

// Flush implements client.Controller. There is nowhere to deliver to.
func (c *Controller) Flush(context.Context) error { return nil }

func (c *Controller) wake() {
	select {
	case c.now <- struct{}{}:
	default: // it will be looked at
	}
}

// take returns what came since the last look.
func (c *Controller) take() (asked []policy.Key, reports []*report.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked, reports = c.asked, c.reports
	c.asked, c.reports = nil, nil
	return asked, reports
}

// run is the state of Run's goroutine, and its own.
type run struct {
	controller *Controller
	listener   client.Listener
	services   map[policy.Key]*control.Service // that the client uses
	number     uint64                          // of the last policy
}

// decide takes in what came, and tells the client what has changed.
func (r *run) decide(now time.Time) {
	asked, reports := r.controller.take()
	for _, key := range asked {
		config := r.controller.config(key)
		if err := config.Validate(); err != nil {
			r.listener.Refused(fmt.Sprintf("configuration of %v: %v", key, err))
			continue
		}
		r.services[key] = control.New(key, config)
	}
	for _, in := range reports {
		if s := r.services[in.Service]; s != nil {
			s.Add(now, in)
		}
	}
	for _, s := range r.services {
		d := s.Tick(now)
		if !d.Publish {
			continue
		}
		r.number++
		p := *d.Policy // which is not to be written to
		p.Generation = policy.Generation{Epoch: r.controller.epoch, Number: r.number}
		s.Published(&p)
		if err := r.listener.Apply(&p); err != nil {
			r.listener.Refused(err.Error())
		}
	}
	r.listener.Heard()
}
