package client

import (
	"context"
	"sync"
)

// scope ends the attempts of one call. It is a context without values.
//
// Most calls end without a hedge, and then nobody has ended their scope: it serves
// another call. Whoever keeps a call's context for longer than the call may find
// it ended or not, as is so of a call's context anyway.
type scope struct {
	context.Context
	cancel context.CancelFunc
	calls  int // that it has served
}

// maxScopeCalls bounds what is kept by those who derive from a call's context,
// and neither end what they have derived nor let it end with the call.
const maxScopeCalls = 100

// scopes are scopes for calls whose caller's context has no end. Like alarms, the
// pool belongs to one connection.
type scopes struct{ pool sync.Pool }

func (p *scopes) get() *scope {
	s, _ := p.pool.Get().(*scope)
	if s == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s = &scope{Context: ctx, cancel: cancel}
	}
	s.calls++
	return s
}

// put takes back a scope that was not ended.
func (p *scopes) put(s *scope) {
	if s.calls >= maxScopeCalls {
		s.cancel()
		return
	}
	p.pool.Put(s)
}
