package local

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// article is a service of which a hundredth of the requests stall for a second,
// and the others take 5 to 15 ms.
type article struct {
	random *rand.Rand
	mu     sync.Mutex
	seen   atomic.Int64
}

func (a *article) RoundTrip(r *http.Request) (*http.Response, error) {
	a.seen.Add(1)
	a.mu.Lock()
	took := 5*ms + time.Duration(a.random.Int64N(int64(10*ms)))
	if a.random.IntN(100) == 0 {
		took = time.Second
	}
	a.mu.Unlock()
	select {
	case <-time.After(took):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("data")), Header: http.Header{}, Request: r}, nil
}

// load makes calls at a steady rate, and returns how many took over half a second.
func load(t *testing.T, hedging *client.Client, a *article, calls int) (slow int64) {
	http1 := &http.Client{Transport: hedging.Transport("orders", a, client.HTTPOptions{
		Replicas: func() []string { return []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"} },
	})}
	var running sync.WaitGroup
	var late atomic.Int64
	for range calls {
		time.Sleep(5 * ms)
		running.Go(func() {
			start := time.Now()
			response, err := http1.Get("http://orders/1")
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
			if time.Since(start) > time.Second/2 {
				late.Add(1)
			}
		})
	}
	running.Wait()
	return late.Load()
}

// Without a daemon the same law learns the delay from this process's calls, and
// keeps to the budget.
func TestHedgesWithoutDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hedging, err := client.New(client.Options{Controller: New(Options{})})
		if err != nil {
			t.Fatal(err)
		}
		a := &article{random: rand.New(rand.NewPCG(1, 2))}
		learning := load(t, hedging, a, 1000)
		slow := load(t, hedging, a, 4000)
		st := hedging.Stats()[0]
		t.Logf("%d of 1000 calls and then %d of 4000 took over .5 s; %+v", learning, slow, st)
		if slow > 4 { // of 40 stalls
			t.Errorf("%d of 4000 calls took over .5 s, want nearly none of 40 stalls left", slow)
		}
		if extra := float64(st.Hedges) / float64(st.Calls); st.Mode != policy.ModeActive || extra > .05 || extra < .01 {
			t.Errorf("mode %v, %.4f extra, want active and 1 to 5%%", st.Mode, extra)
		}
		if seen := uint64(a.seen.Load()); seen != st.Calls+st.Hedges-st.CancelledUnsent && seen != st.Calls+st.Hedges {
			t.Errorf("%d attempts, want those of %+v", seen, st.Counts)
		}

		// It is told nothing for hours, and the policy lives.
		time.Sleep(2 * policy.DefaultValidFor)
		if st := hedging.Stats()[0]; st.Mode != policy.ModeActive {
			t.Errorf("mode %v after a pause, want active: the controller is there", st.Mode)
		}
		if err := hedging.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A service's own configuration is used; one that does not validate is refused.
func TestConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hedging, err := client.New(client.Options{Controller: New(Options{Config: func(service policy.Key) control.Config {
			c := control.DefaultConfig()
			c.Configured = true
			switch service.Service {
			case "orders":
				c.Mode = policy.ModeShadow
			case "bad":
				c.Target = 2
			}
			return c
		}})})
		if err != nil {
			t.Fatal(err)
		}
		hedging.DialOptions("bad")
		a := &article{random: rand.New(rand.NewPCG(1, 2))}
		load(t, hedging, a, 1000)
		for _, st := range hedging.Stats() {
			switch {
			case st.Key.Service == "orders" && (st.Mode != policy.ModeShadow || st.Hedges > 0 || st.Delay["GET"] == 0):
				t.Errorf("%+v, want a delay and no hedge in shadow", st)
			case st.Key.Service == "bad" && st.Applied > 0:
				t.Errorf("%+v, want no policy", st)
			}
		}
		if n := hedging.RefusedReports(); n != 1 {
			t.Errorf("%d refusals, want 1", n)
		}
		if err := hedging.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A run ends with its context, and holds no report of a service that nobody asked for.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		c := New(Options{})
		go func() {
			c.Run(ctx, nil)
			close(done)
		}()
		cancel()
		<-done
		if err := c.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
