package daemon

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
)

const (
	defaultHistory = 100
	// MaxHistory is how many entries GetHistory returns at most.
	MaxHistory = 1000
)

// GetHistory implements AdminService.
func (a *admin) GetHistory(_ context.Context, req *hedgedv1.GetHistoryRequest) (*hedgedv1.GetHistoryResponse, error) {
	if req.GetLimit() > MaxHistory {
		return nil, status.Errorf(codes.InvalidArgument, "limit: %d, want at most %d", req.GetLimit(), MaxHistory)
	}
	owners := a.d.sorted(policy.Key{})
	var only policy.Key
	if req.GetService() != "" {
		o, err := a.owner(req.GetService())
		if err != nil {
			return nil, err
		}
		owners, only = []*owner{o}, o.key
	}
	var entries []*hedgedv1.HistoryEntry
	for _, o := range a.d.state.Past() {
		e := &hedgedv1.HistoryEntry{
			At:   timestamppb.New(o.SetAt),
			What: &hedgedv1.HistoryEntry_Override{Override: overrideToProto(o)},
		}
		if !o.All() {
			e.Service = o.Key.String()
		}
		if o.All() || only == (policy.Key{}) || o.Key == only {
			entries = append(entries, e)
		}
	}
	for _, o := range owners {
		for _, c := range o.snapshot.Load().changes {
			entries = append(entries, &hedgedv1.HistoryEntry{
				At:      timestamppb.New(c.at),
				Service: o.key.String(),
				What:    &hedgedv1.HistoryEntry_Change{Change: changeToProto(c)},
			})
		}
	}
	slices.SortStableFunc(entries, func(x, y *hedgedv1.HistoryEntry) int {
		return y.GetAt().AsTime().Compare(x.GetAt().AsTime())
	})
	limit := int(cmp.Or(req.GetLimit(), defaultHistory))
	return &hedgedv1.GetHistoryResponse{Entries: entries[:min(limit, len(entries))]}, nil
}

// GetSeries implements AdminService.
func (a *admin) GetSeries(_ context.Context, req *hedgedv1.GetSeriesRequest) (*hedgedv1.GetSeriesResponse, error) {
	o, err := a.owner(req.GetService())
	if err != nil {
		return nil, err
	}
	return &hedgedv1.GetSeriesResponse{Series: seriesToProto(o.snapshot.Load().series)}, nil
}

func changeToProto(c change) *hedgedv1.Change {
	m := &hedgedv1.Change{
		At:         timestamppb.New(c.at),
		Generation: wire.GenerationToProto(c.generation),
		Method:     c.method,
		Mode:       wire.ModeToProto(c.mode),
		Reason:     c.reason.Text,
		ReasonCode: wire.ReasonCodeToProto(c.reason.Code),
	}
	m.DelayBefore, m.DelayAfter = durationpb.New(c.before), durationpb.New(c.after)
	return m
}

// changeFromProto reads a change that this daemon stored.
func changeFromProto(m *hedgedv1.Change) change {
	return change{
		at:         m.GetAt().AsTime(),
		generation: wire.GenerationFromProto(m.GetGeneration()),
		method:     m.GetMethod(),
		mode:       wire.ModeFromProto(m.GetMode()),
		before:     m.GetDelayBefore().AsDuration(),
		after:      m.GetDelayAfter().AsDuration(),
		reason:     policy.Reason{Code: wire.ReasonCodeFromProto(m.GetReasonCode()), Text: m.GetReason()},
	}
}
