package wire

import (
	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
)

// ModeToProto maps what is no mode to MODE_OFF: whoever is in doubt does not hedge.
func ModeToProto(m policy.Mode) hedgedv1.Mode {
	switch m {
	case policy.ModeActive:
		return hedgedv1.Mode_MODE_ACTIVE
	case policy.ModeShadow:
		return hedgedv1.Mode_MODE_SHADOW
	default:
		return hedgedv1.Mode_MODE_OFF
	}
}

// ModeFromProto follows policy.proto: "A value that the client does not know
// means MODE_OFF."
func ModeFromProto(m hedgedv1.Mode) policy.Mode {
	switch m {
	case hedgedv1.Mode_MODE_ACTIVE:
		return policy.ModeActive
	case hedgedv1.Mode_MODE_SHADOW:
		return policy.ModeShadow
	default:
		return policy.ModeOff
	}
}

// ReplicaStateToProto maps what is no state to REPLICA_STATE_SERVING.
func ReplicaStateToProto(s policy.ReplicaState) hedgedv1.ReplicaState {
	switch s {
	case policy.ReplicaProbation:
		return hedgedv1.ReplicaState_REPLICA_STATE_PROBATION
	case policy.ReplicaRecovering:
		return hedgedv1.ReplicaState_REPLICA_STATE_RECOVERING
	default:
		return hedgedv1.ReplicaState_REPLICA_STATE_SERVING
	}
}

// "A client treats a value it does not know as serving." (policy.proto)
func replicaStateFromProto(s hedgedv1.ReplicaState) policy.ReplicaState {
	switch s {
	case hedgedv1.ReplicaState_REPLICA_STATE_PROBATION:
		return policy.ReplicaProbation
	case hedgedv1.ReplicaState_REPLICA_STATE_RECOVERING:
		return policy.ReplicaRecovering
	default:
		return policy.ReplicaServing
	}
}

// ReasonCodeToProto maps what is no code to REASON_CODE_UNSPECIFIED.
func ReasonCodeToProto(c policy.ReasonCode) hedgedv1.ReasonCode {
	switch c {
	case policy.ReasonOverride:
		return hedgedv1.ReasonCode_REASON_CODE_OVERRIDE
	case policy.ReasonNotConfigured:
		return hedgedv1.ReasonCode_REASON_CODE_NOT_CONFIGURED
	case policy.ReasonNoData:
		return hedgedv1.ReasonCode_REASON_CODE_NO_DATA
	case policy.ReasonTooFewReplicas:
		return hedgedv1.ReasonCode_REASON_CODE_TOO_FEW_REPLICAS
	case policy.ReasonFailing:
		return hedgedv1.ReasonCode_REASON_CODE_FAILING
	case policy.ReasonTracking:
		return hedgedv1.ReasonCode_REASON_CODE_TRACKING
	case policy.ReasonFreeze:
		return hedgedv1.ReasonCode_REASON_CODE_FREEZE
	case policy.ReasonShared:
		return hedgedv1.ReasonCode_REASON_CODE_SHARED
	case policy.ReasonCostly:
		return hedgedv1.ReasonCode_REASON_CODE_COSTLY
	default:
		return hedgedv1.ReasonCode_REASON_CODE_UNSPECIFIED
	}
}

// ReasonCodeFromProto returns the guard that a code names; zero for one that is unknown.
func ReasonCodeFromProto(c hedgedv1.ReasonCode) policy.ReasonCode {
	switch c {
	case hedgedv1.ReasonCode_REASON_CODE_OVERRIDE:
		return policy.ReasonOverride
	case hedgedv1.ReasonCode_REASON_CODE_NOT_CONFIGURED:
		return policy.ReasonNotConfigured
	case hedgedv1.ReasonCode_REASON_CODE_NO_DATA:
		return policy.ReasonNoData
	case hedgedv1.ReasonCode_REASON_CODE_TOO_FEW_REPLICAS:
		return policy.ReasonTooFewReplicas
	case hedgedv1.ReasonCode_REASON_CODE_FAILING:
		return policy.ReasonFailing
	case hedgedv1.ReasonCode_REASON_CODE_TRACKING:
		return policy.ReasonTracking
	case hedgedv1.ReasonCode_REASON_CODE_FREEZE:
		return policy.ReasonFreeze
	case hedgedv1.ReasonCode_REASON_CODE_SHARED:
		return policy.ReasonShared
	case hedgedv1.ReasonCode_REASON_CODE_COSTLY:
		return policy.ReasonCostly
	default:
		return policy.ReasonUnknown
	}
}

// suppressions finds a suppression by the name that it has on the wire.
var suppressions = func() map[string]policy.Suppression {
	m := make(map[string]policy.Suppression, policy.NumSuppressions)
	for s := range policy.NumSuppressions {
		m[s.String()] = s
	}
	return m
}()
