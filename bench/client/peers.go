package main

import (
	"context"
	"net/http"
	"time"

	"github.com/cristalhq/hedgedhttp"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"google.golang.org/grpc"

	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/client/local"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// ours is a client whose law runs in this process.
func ours() *client.Client {
	return newOurs(local.New(local.Options{}))
}

// oursFixed has a fixed policy, as the peers have, where the price of a call is
// measured: every call earns a hedge.
func oursFixed(delay time.Duration) *client.Client {
	return newOurs(&fixed{delay: delay, asked: make(chan policy.Key, 1)})
}

func newOurs(controller client.Controller) *client.Client {
	c, err := client.New(client.Options{Controller: controller, Hedgeable: []string{method}})
	if err != nil {
		fail(err)
	}
	return c
}

// fixed is a controller with one policy for the one service that is asked for.
type fixed struct {
	delay time.Duration
	asked chan policy.Key
}

func (f *fixed) Run(ctx context.Context, l client.Listener) {
	select {
	case key := <-f.asked:
		err := l.Apply(&policy.Policy{
			Key:        key,
			Generation: policy.Generation{Epoch: 1, Number: 1},
			Mode:       policy.ModeActive,
			Budget:     policy.Budget{Ratio: 1, Burst: 200, Start: 200},
			Default:    policy.Method{Delay: f.delay, Probability: 1, MaxAttempts: 2},
			ValidFor:   policy.MaxValidFor,
		})
		if err != nil {
			fail(err)
		}
	case <-ctx.Done():
	}
	<-ctx.Done()
}
func (f *fixed) Subscribe(key policy.Key)     { f.asked <- key }
func (f *fixed) Report(*report.Report) uint64 { return 0 }
func (f *fixed) Flush(context.Context) error  { return nil }

// await waits until a client has its policy.
func await(c *client.Client) {
	for c.Stats()[0].Applied == 0 {
		time.Sleep(time.Millisecond)
	}
}

func failsafeGRPC(delay time.Duration) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(failsafegrpc.NewUnaryClientInterceptor[any](hedgepolicy.NewWithDelay[any](delay)))
}

func failsafeHTTP(delay time.Duration, base http.RoundTripper) http.RoundTripper {
	return failsafehttp.NewRoundTripper(base, hedgepolicy.NewWithDelay[*http.Response](delay))
}

func hedgedHTTP(delay time.Duration, base http.RoundTripper) http.RoundTripper {
	rt, err := hedgedhttp.NewRoundTripper(delay, 2, base)
	if err != nil {
		fail(err)
	}
	return rt
}
