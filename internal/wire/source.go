package wire

import (
	"errors"
	"fmt"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// SourceToProto returns s as a message.
func SourceToProto(s report.Source) *hedgedv1.Source {
	kind := hedgedv1.SourceKind_SOURCE_KIND_CLIENT
	if s.Kind == report.Server {
		kind = hedgedv1.SourceKind_SOURCE_KIND_SERVER
	}
	return &hedgedv1.Source{
		Id:          s.ID,
		Incarnation: s.Incarnation,
		Zone:        s.Zone,
		Version:     s.Version,
		Kind:        kind,
		Replica:     s.Replica,
	}
}

// SourceFromProto returns m as a source, or an error that names field, value
// and bound. A server may leave its replica empty: its counts then stand for
// the service only.
func SourceFromProto(m *hedgedv1.Source) (report.Source, error) {
	if m == nil {
		return report.Source{}, errors.New("source: is absent")
	}
	s := report.Source{
		ID:          m.GetId(),
		Incarnation: m.GetIncarnation(),
		Zone:        m.GetZone(),
		Version:     m.GetVersion(),
		Replica:     m.GetReplica(),
	}
	switch m.GetKind() {
	case hedgedv1.SourceKind_SOURCE_KIND_CLIENT:
		s.Kind = report.Client
	case hedgedv1.SourceKind_SOURCE_KIND_SERVER:
		s.Kind = report.Server
	default:
		return report.Source{}, fmt.Errorf("source.kind: %d, want 1 (client) or 2 (server)", m.GetKind())
	}
	err := errors.Join(
		policy.ValidateName("source.id", s.ID),
		optionalName("source.zone", s.Zone),
		optionalName("source.version", s.Version),
		optionalName("source.replica", s.Replica),
	)
	switch {
	case err != nil:
		return report.Source{}, err
	case s.Incarnation == 0:
		return report.Source{}, errors.New("source.incarnation: 0, want more than 0")
	case s.Kind == report.Client && s.Replica != "":
		return report.Source{}, fmt.Errorf("source.replica: %q of a client, want it empty: only servers have one", s.Replica)
	}
	return s, nil
}
