package sim

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Pool runs worlds beside each other, as many at a time as there are processors,
// whoever asks. Nothing that it runs may wait for the pool.
type Pool struct{ slots chan struct{} }

// NewPool returns a pool for all processors.
func NewPool() *Pool {
	return &Pool{slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Each calls f(0) to f(n-1) and waits for their end; after an error it calls no more.
func (p *Pool) Each(n int, f func(int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(n, cap(p.slots)) {
		wg.Go(func() {
			for {
				p.slots <- struct{}{}
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() != nil {
					<-p.slots
					return
				}
				if err := f(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
				<-p.slots
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
