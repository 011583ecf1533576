package client

import (
	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"
)

// callHedges is registered with gRPC, so that whatever takes a connection's metrics
// takes it too. gRFC A96: "Number of hedges during the client call. If there were
// no hedges, 0 is not reported. Recommended histogram bucket boundaries are
// [1,2,3,4,5]." Its other metrics are of retries, which these are not.
var callHedges = estats.RegisterInt64Histo(estats.MetricDescriptor{
	Name:        "grpc.client.call.hedges",
	Description: "Number of hedges during the client call.",
	Unit:        "{hedge}",
	Bounds:      []float64{1, 2, 3, 4, 5},
	Labels:      []string{"grpc.method", "grpc.target"},
	Default:     true,
})

// noteHedges records a call that has ended, if it was hedged.
func (c *call) noteHedges() {
	c.mu.Lock()
	n, b := len(c.hedges), c.balancer
	c.mu.Unlock()
	if n > 0 && b != nil && b.metrics != nil {
		callHedges.Record(b.metrics, int64(n), methodLabel(c.fullMethod, c.opts), c.cc.CanonicalTarget())
	}
}

// methodLabel is a method's as gRFC A66 has it: one that is not known when the
// program is built, as generated code's are, counts as other.
func methodLabel(method string, opts []grpc.CallOption) string {
	for _, o := range opts {
		if _, ok := o.(grpc.StaticMethodCallOption); ok {
			return method
		}
	}
	return other
}
