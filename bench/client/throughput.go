package main

import (
	"context"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

// rate is how many calls a second 64 callers make, median over the rounds.
type rate struct {
	Library string  `json:"library"`
	Calls   float64 `json:"calls_per_s"`
	Ratio   float64 `json:"ratio"` // to plain

	// What the process spends on a call, servers included: on a machine with other
	// work it says more than the rate.
	CPU      float64 `json:"cpu_us"`
	CPURatio float64 `json:"cpu_ratio"` // plain's to this one's
}

const callersAtOnce = 64

func throughput(quick bool) []rate {
	rounds, each := 11, time.Second
	if quick {
		rounds, each = 3, 200*time.Millisecond
	}
	s := startServers(2, func(context.Context, bool) error { return nil })
	defer s.stop()
	c := ours()
	defer func() { _ = c.Close() }()
	all := []struct {
		library string
		conn    *grpc.ClientConn
	}{
		{"plain", s.dialGRPC(roundRobin)},
		{"plain again", s.dialGRPC(roundRobin)},
		{"hedged", s.dialGRPC(c.DialOptions("store")...)},
		{"failsafe-go", s.dialGRPC(failsafeGRPC(time.Second), roundRobin)},
	}
	rates, cpu := make([][]float64, len(all)), make([][]float64, len(all))
	for round := range rounds + 1 {
		for k := range all {
			i := (round + k) % len(all)
			before := cpuTime()
			n := spin(all[i].conn, each)
			spent := cpuTime() - before
			if round > 0 {
				rates[i] = append(rates[i], float64(n)/each.Seconds())
				cpu[i] = append(cpu[i], float64(spent.Microseconds())/float64(n))
			}
		}
	}
	var out []rate
	for i, l := range all {
		_ = l.conn.Close()
		out = append(out, rate{Library: l.library, Calls: median(rates[i]), CPU: median(cpu[i])})
	}
	for i := range out {
		out[i].Ratio, out[i].CPURatio = out[i].Calls/out[0].Calls, out[0].CPU/out[i].CPU
	}
	return out
}

// cpuTime is what the process has used of all CPUs.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fail(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func spin(conn *grpc.ClientConn, d time.Duration) (calls int) {
	end := time.Now().Add(d)
	var mu sync.Mutex
	var running sync.WaitGroup
	for range callersAtOnce {
		running.Go(func() {
			n := 0
			for time.Now().Before(end) {
				if err := invoke(context.Background(), conn); err != nil {
					fail(err)
				}
				n++
			}
			mu.Lock()
			calls += n
			mu.Unlock()
		})
	}
	running.Wait()
	return calls
}
