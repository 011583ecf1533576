package hedgectl

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

// serviceConfig is gRPC's service config, as far as gRFC A6 says it.
type serviceConfig struct {
	MethodConfig []methodConfig   `json:"methodConfig"`
	Throttling   *retryThrottling `json:"retryThrottling,omitempty"`
}

type methodConfig struct {
	Name    []methodName   `json:"name"`
	Hedging *hedgingPolicy `json:"hedgingPolicy,omitempty"`
}

type methodName struct {
	Service string `json:"service,omitempty"`
	Method  string `json:"method,omitempty"`
}

type hedgingPolicy struct {
	MaxAttempts uint32   `json:"maxAttempts"`
	Delay       string   `json:"hedgingDelay"`
	NonFatal    []string `json:"nonFatalStatusCodes,omitempty"`
}

type retryThrottling struct {
	MaxTokens  int     `json:"maxTokens"`
	TokenRatio float64 `json:"tokenRatio"`
}

// writeServiceConfig prints a policy by the rules of gRFC A6. A method that is not
// to be hedged has an entry without a policy, so that no wider one covers it.
func writeServiceConfig(w io.Writer, p *hedgedv1.ServicePolicy) error {
	c := serviceConfig{MethodConfig: []methodConfig{}}
	if p.GetMode() == hedgedv1.Mode_MODE_ACTIVE {
		for _, name := range slices.Sorted(maps.Keys(p.GetMethods())) {
			path, isPath := strings.CutPrefix(name, "/")
			service, method, ok := strings.Cut(path, "/")
			if !isPath || !ok { // an HTTP route
				continue
			}
			c.MethodConfig = append(c.MethodConfig, methodConfig{
				Name:    []methodName{{service, method}},
				Hedging: hedging(p.GetMethods()[name]),
			})
		}
		if h := hedging(p.GetDefaultMethod()); h != nil {
			// A6: a name without a service is the default of all methods.
			c.MethodConfig = append(c.MethodConfig, methodConfig{Name: []methodName{{}}, Hedging: h})
		}
		if t := p.GetThrottle(); t.GetMaxTokens() >= 1 {
			c.Throttling = &retryThrottling{int(t.GetMaxTokens()), t.GetTokenRatio()}
		}
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(c)
}

// hedging is nil where a method is not hedged, or only by chance.
func hedging(m *hedgedv1.MethodPolicy) *hedgingPolicy {
	d := m.GetDelay().AsDuration()
	if d <= 0 || m.GetProbability() < 1 {
		return nil
	}
	h := &hedgingPolicy{MaxAttempts: m.GetMaxAttempts(), Delay: seconds(d)}
	for _, n := range m.GetNonFatalStatusCodes() {
		h.NonFatal = append(h.NonFatal, code.Code(n).String())
	}
	return h
}

// seconds is a duration as JSON writes google.protobuf.Duration.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
