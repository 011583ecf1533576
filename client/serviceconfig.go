package client

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/serviceconfig"
)

// refuse says what is not used of the service config that the resolver has
// brought. See docs/adr/0021-service-config-refused.md.
func (b *replicaBalancer) refuse(config *serviceconfig.ParseResult) {
	text := configText(config)
	b.refused.Store(&text)
}

func configText(config *serviceconfig.ParseResult) string {
	const what = "the resolver's service config is not used"
	if config.Err != nil {
		return fmt.Sprintf("%s: %v", what, config.Err)
	}
	c, ok := config.Config.(*grpc.ServiceConfig) //nolint:staticcheck // nothing else tells what is in it
	if !ok {
		return fmt.Sprintf("%s: it is a %T", what, config.Config)
	}
	parts := []string{"its load balancing, if any, would switch hedging off"}
	for _, name := range slices.Sorted(maps.Keys(c.Methods)) {
		m := c.Methods[name]
		var set []string
		for field, present := range map[string]bool{
			"timeout": m.Timeout != nil, "waitForReady": m.WaitForReady != nil,
			"maxRequestMessageBytes": m.MaxReqSize != nil, "maxResponseMessageBytes": m.MaxRespSize != nil,
			"retryPolicy": m.RetryPolicy != nil,
		} {
			if present {
				set = append(set, field)
			}
		}
		slices.Sort(set)
		if name == "" {
			name = "all methods"
		}
		parts = append(parts, fmt.Sprintf("%s of %s: give call options instead", strings.Join(set, ", "), name))
	}
	return what + ": " + strings.Join(parts, "; ")
}

// noteConfig tells the service of a config that is not used: the log, once for
// each, and its statistics.
func (s *service) noteConfig(b *replicaBalancer) {
	if b.refused.Load() == nil {
		return
	}
	text := b.refused.Swap(nil)
	if text == nil {
		return
	}
	if old := s.refusedConfig.Swap(text); old == nil || *old != *text {
		s.log.Warn(*text, "service", s.key.String())
	}
}
