package xds

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// request is what both variants of the protocol ask, in one form.
type request struct {
	node     string // of the first request at least
	byGRPC   bool   // node is a gRPC client
	typeURL  string
	nonce    string // of the response that this one answers, if any
	rejected bool
	reason   string // why rejected; never empty then

	names                  []string // SotW: the whole set
	subscribe, unsubscribe []string // delta: changes to the set
	held                   map[string]string
}

func fromSotW(m *discovery.DiscoveryRequest) *request {
	r := &request{
		node:    m.GetNode().GetId(),
		byGRPC:  byGRPC(m.GetNode()),
		typeURL: m.GetTypeUrl(),
		nonce:   m.GetResponseNonce(),
		names:   m.GetResourceNames(),
	}
	r.detail(m.GetErrorDetail())
	return r
}

func fromDelta(m *discovery.DeltaDiscoveryRequest) *request {
	r := &request{
		node:        m.GetNode().GetId(),
		byGRPC:      byGRPC(m.GetNode()),
		typeURL:     m.GetTypeUrl(),
		nonce:       m.GetResponseNonce(),
		subscribe:   m.GetResourceNamesSubscribe(),
		unsubscribe: m.GetResourceNamesUnsubscribe(),
		held:        m.GetInitialResourceVersions(),
	}
	r.detail(m.GetErrorDetail())
	return r
}

// byGRPC reports whether a node is a gRPC client, all of which call themselves
// "gRPC" and the language. They never use the wildcard: "other xDS clients (such as
// gRPC clients that use xDS) may explicitly subscribe to specific resource names
// for these resource types" (xDS protocol, "Client Behavior"), so that no names are
// none: they have nothing to ask for yet, or any more.
func byGRPC(n *corev3.Node) bool { return strings.HasPrefix(n.GetUserAgentName(), "gRPC") }

// detail reads the one sign of a rejection.
//
// "The preferred mechanism for a server to detect a NACK is to look for the
// presence of the error_detail field in the request sent by the client."
// (xDS protocol, "NACK")
func (r *request) detail(d *status.Status) {
	if d == nil {
		return
	}
	r.rejected = true
	r.reason = d.GetMessage()
	if len(r.reason) > maxReason {
		r.reason = r.reason[:maxReason]
	}
	r.reason = strings.ToValidUTF8(r.reason, "?")
	if r.reason == "" {
		r.reason = fmt.Sprintf("no reason given (code %d)", d.GetCode())
	}
}

// check reports what is out of bounds, naming field, value and bound. How many
// names a stream may hold is for the stream to judge.
func (r *request) check() error {
	if err := checkOptional("node.id", r.node); err != nil {
		return err
	}
	if err := checkText("type_url", r.typeURL); err != nil {
		return err
	}
	if err := checkOptional("response_nonce", r.nonce); err != nil {
		return err
	}
	if err := checkNames("resource_names", r.names); err != nil {
		return err
	}
	if err := checkNames("resource_names_subscribe", r.subscribe); err != nil {
		return err
	}
	for name, version := range r.held {
		if err := checkText("initial_resource_versions key", name); err != nil {
			return err
		}
		if err := checkOptional("initial_resource_versions value", version); err != nil {
			return err
		}
	}
	return nil
}

func checkNames(field string, names []string) error {
	for i, name := range names {
		if err := checkText(field, name); err != nil {
			return fmt.Errorf("%w (element %d)", err, i)
		}
	}
	return nil
}
