package demo

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	demov1 "github.com/hedged-project/hedged/internal/demo/proto/hedged/demo/v1"
)

// callTimeout is the deadline of every call: far above a stall.
const callTimeout = 10 * time.Second

// load is a closed loop: inFlight callers, each of which makes its next call
// when its last has ended.
type load struct {
	conn     *grpc.ClientConn
	call     func(ctx context.Context, n int64) error // nil: GetUser on conn
	inFlight int
	calls    int            // 0: until the context ends
	progress func(done int) // called now and then; may be nil
}

// outcome is what callers saw.
type outcome struct {
	latencies []time.Duration // of calls that succeeded, sorted
	errors    int
}

// run makes the calls. A context that ends stops new calls, not those under way.
func (l load) run(ctx context.Context) outcome {
	call := l.call
	if call == nil {
		users := demov1.NewUserServiceClient(l.conn)
		call = func(ctx context.Context, n int64) error {
			_, err := users.GetUser(ctx, &demov1.GetUserRequest{Id: uint64(n)}, grpc.WaitForReady(true))
			return err
		}
	}
	var next atomic.Int64
	outcomes := make([]outcome, l.inFlight)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() {
			o := &outcomes[i]
			for ctx.Err() == nil {
				n := next.Add(1)
				if l.calls > 0 && n > int64(l.calls) {
					return
				}
				begun := time.Now()
				callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
				err := call(callCtx, n)
				cancel()
				if err != nil {
					o.errors++
				} else {
					o.latencies = append(o.latencies, time.Since(begun))
				}
				if l.progress != nil && n%100 == 0 {
					l.progress(int(n))
				}
			}
		})
	}
	wg.Wait()
	var all outcome
	for _, o := range outcomes {
		all.latencies = append(all.latencies, o.latencies...)
		all.errors += o.errors
	}
	slices.Sort(all.latencies)
	return all
}

func (o outcome) calls() int { return len(o.latencies) + o.errors }

// quantile is the smallest latency that a share q of the calls did not exceed;
// 0 without calls.
func (o outcome) quantile(q float64) time.Duration {
	if len(o.latencies) == 0 {
		return 0
	}
	i := int(q*float64(len(o.latencies))+0.999999) - 1
	return o.latencies[min(max(i, 0), len(o.latencies)-1)]
}

// over counts calls that took at least d.
func (o outcome) over(d time.Duration) int {
	i, _ := slices.BinarySearch(o.latencies, d)
	return len(o.latencies) - i
}

// running is a load that goes on in the background.
type running struct {
	stop context.CancelFunc
	done chan struct{}
	out  outcome
}

func begin(ctx context.Context, l load) *running {
	ctx, stop := context.WithCancel(ctx)
	r := &running{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.out = l.run(ctx)
	}()
	return r
}

// end stops the load and returns what its callers saw. It may be called again.
func (r *running) end() outcome {
	r.stop()
	<-r.done
	return r.out
}
