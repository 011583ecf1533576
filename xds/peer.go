package xds

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/peer"
)

// What one peer, a network connection, may ask of the server. Nobody can choose
// these well for one installation, so they are constants: far above what an
// honest client needs, or a proxy that carries many, and low enough that a
// hostile one costs some tens of megabytes.
const (
	maxStreams   = 1000
	maxNames     = 1 << 16  // subscribed names of all its streams
	maxNameBytes = 16 << 20 // of these names
)

// account is what one peer has taken.
type account struct {
	addr    string
	streams int // under the lock of accounts

	mu           sync.Mutex
	names, bytes int
}

// accounts are those of all peers with a stream.
type accounts struct {
	mu     sync.Mutex
	byAddr map[string]*account
}

// open returns the peer's account with one more stream.
func (x *accounts) open(addr string) (*account, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byAddr[addr]
	if a == nil {
		a = &account{addr: addr}
		x.byAddr[addr] = a
	}
	if a.streams == maxStreams {
		return nil, fmt.Errorf("streams: one more than %d of one connection", maxStreams)
	}
	a.streams++
	return a, nil
}

func (x *accounts) close(a *account) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.streams--; a.streams == 0 {
		delete(x.byAddr, a.addr)
	}
}

// take notes that a stream of the peer watches names, or no more.
func (a *account) take(added, removed []string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names += len(added) - len(removed)
	for _, name := range added {
		a.bytes += len(name)
	}
	for _, name := range removed {
		a.bytes -= len(name)
	}
	switch {
	case len(added) == 0:
	case a.names > maxNames:
		return fmt.Errorf("resource names: %d are subscribed, want at most %d on one connection", a.names, maxNames)
	case a.bytes > maxNameBytes:
		return fmt.Errorf("resource names: those subscribed have %d bytes, want at most %d on one connection", a.bytes, maxNameBytes)
	}
	return nil
}

// address is the peer of a stream.
func address(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}
