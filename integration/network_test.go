package integration_test

import (
	"io"
	"net"
	"sync"
	"testing"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// gate stands between a client and the daemon: shut, it takes connections and
// answers nothing; open, it passes on what it took and what comes.
type gate struct {
	addr   string
	opened chan struct{}
}

func startGate(t *testing.T, daemonAddr string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: l.Addr().String(), opened: make(chan struct{})}
	closing := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer from.Close()
				select {
				case <-g.opened:
				case <-closing:
					return
				}
				to, err := net.Dial("tcp", daemonAddr)
				if err != nil {
					return
				}
				running.Go(func() {
					defer to.Close()
					_, _ = io.Copy(to, from)
				})
				running.Go(func() {
					<-closing
					from.Close()
					to.Close()
				})
				_, _ = io.Copy(from, to)
			})
		}
	})
	t.Cleanup(func() {
		close(closing)
		l.Close()
		running.Wait()
	})
	return g
}

// A client that cannot reach the daemon hedges nothing, and no call fails for it:
// neither where nobody listens nor where a listener never answers. All that it
// learns comes over that one way: once it is open, it hedges by what others taught
// the daemon.
func TestBlockedWay(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, t.TempDir(), "--cadence", "100ms")
	d.set(t, "users", hedgedv1.Mode_MODE_ACTIVE, 0)
	f := startFleet(t, "users")
	teacher := f.call(t, d.ready.GRPC, "teacher")
	teaching := teacher.load(t, 8)
	await(t, "a client that reaches it hedges", func() bool { return teacher.hedging() && teacher.stats().Hedges > 0 })

	g := startGate(t, d.ready.GRPC)
	blocked := map[string]*caller{
		"nobody listens": f.call(t, closedPort(t), "alone"),
		"never answers":  f.call(t, g.addr, "shut"),
	}
	for what, c := range blocked {
		end := c.load(t, 4)
		await(t, "400 calls", func() bool { return c.stats().Calls >= 400 })
		calls, err := end()
		st := c.stats()
		if err != nil || st.Hedges != 0 || !st.Generation.IsZero() {
			t.Errorf("%s: of %d calls the first failure is %v; %d hedges by %v; want none, none, and no policy",
				what, calls, err, st.Hedges, st.Generation)
		}
	}

	close(g.opened)
	shut := blocked["never answers"]
	end := shut.load(t, 8)
	await(t, "it hedges once the way is open", func() bool { return shut.hedging() && shut.stats().Hedges > 0 })
	for _, end := range []func() (int, error){end, teaching} {
		if calls, err := end(); err != nil {
			t.Errorf("of %d calls one failed: %v", calls, err)
		}
	}
	wantWithinBudget(t, shut)
}
