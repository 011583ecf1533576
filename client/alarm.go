package client

import (
	"sync"
	"sync/atomic"
	"time"
)

// alarms are timers for calls, used again: most calls end before theirs rings.
// The pool belongs to one connection or transport and not to the package, so that a timer
// never leaves the synctest bubble in which an application's test made it.
type alarms struct{ pool sync.Pool }

// alarm is a timer that rings for the call that holds it.
type alarm struct {
	timer *time.Timer
	race  atomic.Pointer[race]
}

// start returns an alarm that rings for r after d.
func (p *alarms) start(r *race, d time.Duration) *alarm {
	a, _ := p.pool.Get().(*alarm)
	if a == nil {
		a = new(alarm)
		a.race.Store(r)
		a.timer = time.AfterFunc(d, a.ring)
		return a
	}
	a.race.Store(r)
	a.timer.Reset(d)
	return a
}

// stop takes the alarm away from its call. One that has rung and may still be
// about to call is not used again. An earlier ring of one that was set anew may
// be, and then reaches the next call: a ring is only a reason to look.
func (p *alarms) stop(a *alarm) {
	if a.timer.Stop() {
		a.race.Store(nil)
		p.pool.Put(a)
	}
}

func (a *alarm) ring() {
	if r := a.race.Load(); r != nil {
		r.ring()
	}
}
