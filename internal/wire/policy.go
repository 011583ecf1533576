package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
)

// ServicePolicyType is the type URL of the xDS resource that carries a policy.
const ServicePolicyType = "type.googleapis.com/hedged.v1.ServicePolicy"

// PolicyToProto returns p as a message. A zero issued leaves issued_at out.
func PolicyToProto(p *policy.Policy, issued time.Time) *hedgedv1.ServicePolicy {
	m := &hedgedv1.ServicePolicy{
		Name:          p.Key.String(),
		Generation:    GenerationToProto(p.Generation),
		Mode:          ModeToProto(p.Mode),
		Budget:        &hedgedv1.Budget{Ratio: p.Budget.Ratio, Burst: p.Budget.Burst, Start: p.Budget.Start},
		DefaultMethod: MethodToProto(p.Default),
		ValidFor:      durationpb.New(p.ValidFor),
		Reason:        ReasonToProto(p.Reason),
	}
	if !issued.IsZero() {
		m.IssuedAt = timestamppb.New(issued)
	}
	if p.Throttle.MaxTokens != 0 {
		m.Throttle = &hedgedv1.Throttle{MaxTokens: p.Throttle.MaxTokens, TokenRatio: p.Throttle.TokenRatio}
	}
	if len(p.Methods) > 0 {
		m.Methods = make(map[string]*hedgedv1.MethodPolicy, len(p.Methods))
		for name, method := range p.Methods {
			m.Methods[name] = MethodToProto(method)
		}
	}
	if len(p.Replicas) > 0 {
		m.Replicas = make(map[string]*hedgedv1.ReplicaPolicy, len(p.Replicas))
		for name, r := range p.Replicas {
			m.Replicas[name] = &hedgedv1.ReplicaPolicy{
				State:  ReplicaStateToProto(r.State),
				Share:  r.Share,
				Reason: text(r.Reason),
			}
		}
	}
	return m
}

// PolicyFromProto returns m as a policy that passes policy.Policy.Validate, or
// an error that names field, value and bound. An absent sub-message stands for
// its zero value, a mode that is not known for ModeOff, a replica state that is
// not known for serving.
func PolicyFromProto(m *hedgedv1.ServicePolicy) (*policy.Policy, error) {
	if m == nil {
		return nil, errors.New("policy: is absent")
	}
	key, err := serviceKey(m.GetName())
	if err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	p := &policy.Policy{
		Key:        key,
		Generation: GenerationFromProto(m.GetGeneration()),
		Mode:       ModeFromProto(m.GetMode()),
		Budget: policy.Budget{
			Ratio: m.GetBudget().GetRatio(),
			Burst: m.GetBudget().GetBurst(),
			Start: m.GetBudget().GetStart(),
		},
		Reason: reasonFromProto(m.GetReason()),
	}
	if t := m.GetThrottle(); t != nil {
		if t.GetMaxTokens() == 0 {
			return nil, fmt.Errorf("throttle.max_tokens: 0, want more than 0 and at most %d", policy.MaxTokens)
		}
		p.Throttle = policy.Throttle{MaxTokens: t.GetMaxTokens(), TokenRatio: t.GetTokenRatio()}
	}
	if p.ValidFor, err = duration("valid_for", m.GetValidFor(), policy.MaxValidFor); err != nil {
		return nil, err
	}
	if p.Default, err = methodFromProto(m.GetDefaultMethod()); err != nil {
		return nil, fmt.Errorf("default_method.%w", err)
	}
	if n := len(m.GetMethods()); n > 0 {
		p.Methods = make(map[string]policy.Method, n)
	}
	for name, method := range m.GetMethods() {
		if err := policy.ValidateName("methods key", name); err != nil {
			return nil, err
		}
		if p.Methods[name], err = methodFromProto(method); err != nil {
			return nil, fmt.Errorf("methods[%q].%w", name, err)
		}
	}
	if n := len(m.GetReplicas()); n > 0 {
		p.Replicas = make(map[string]policy.Replica, n)
	}
	for name, r := range m.GetReplicas() {
		p.Replicas[name] = policy.Replica{
			State:  replicaStateFromProto(r.GetState()),
			Share:  r.GetShare(),
			Reason: r.GetReason(),
		}
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// PolicyVersion returns the xDS version of p: a hash of its content without its
// generation (and without issued_at, which a Policy does not have). Equal
// content has an equal version in every process of one build; a build against
// another protobuf library may number differently, which costs one push.
//
// It panics when a name of p is not valid UTF-8, which Validate refuses.
func PolicyVersion(p *policy.Policy) string {
	m := PolicyToProto(p, time.Time{})
	m.Generation = nil
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("wire: version of an invalid policy: %v", err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// GenerationToProto returns nil for the zero Generation.
func GenerationToProto(g policy.Generation) *hedgedv1.Generation {
	if g.IsZero() {
		return nil
	}
	return &hedgedv1.Generation{Epoch: g.Epoch, Number: g.Number}
}

// GenerationFromProto returns the generation; zero for an absent one.
func GenerationFromProto(g *hedgedv1.Generation) policy.Generation {
	return policy.Generation{Epoch: g.GetEpoch(), Number: g.GetNumber()}
}

// MethodToProto converts one method's part of a policy.
func MethodToProto(m policy.Method) *hedgedv1.MethodPolicy {
	return &hedgedv1.MethodPolicy{
		Delay:               durationpb.New(m.Delay),
		Probability:         m.Probability,
		MaxAttempts:         uint32(m.MaxAttempts),
		NonFatalStatusCodes: append([]uint32(nil), m.NonFatal...),
		Observe:             m.Observe,
		Holdout:             m.Holdout,
		Reason:              ReasonToProto(m.Reason),
	}
}

func methodFromProto(m *hedgedv1.MethodPolicy) (policy.Method, error) {
	delay, err := duration("delay", m.GetDelay(), policy.MaxDelay)
	if err != nil {
		return policy.Method{}, err
	}
	return policy.Method{
		Delay:       delay,
		Probability: m.GetProbability(),
		MaxAttempts: int(m.GetMaxAttempts()),
		NonFatal:    append([]uint32(nil), m.GetNonFatalStatusCodes()...),
		Observe:     m.GetObserve(),
		Holdout:     m.GetHoldout(),
		Reason:      reasonFromProto(m.GetReason()),
	}, nil
}

// ReasonToProto returns nil for the zero Reason.
func ReasonToProto(r policy.Reason) *hedgedv1.Reason {
	if r == (policy.Reason{}) {
		return nil
	}
	return &hedgedv1.Reason{Code: ReasonCodeToProto(r.Code), Text: text(r.Text)}
}

func reasonFromProto(r *hedgedv1.Reason) policy.Reason {
	return policy.Reason{Code: ReasonCodeFromProto(r.GetCode()), Text: r.GetText()}
}

// text makes a sentence for people fit for a proto string, which must be valid UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
