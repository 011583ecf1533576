package wire

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/estimator"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/report"
)

// Bounds of a frame, as report.proto states them. One source's frame is refused
// whole when it is outside them.
const (
	MaxInterval       = time.Hour
	MaxCount          = 1e9              // of anything in one interval
	MaxUnderWay       = 100_000          // calls of one method that one source can have under way
	MaxHistogramBytes = 16 << 10         // of one encoded histogram
	MaxSuppressed     = 16               // keys
	MaxWasted         = 1000 * time.Hour // handler time in one interval

	// MaxDecodedBytes bounds the memory of one frame's histograms: three bytes on
	// the wire may become a thousand. An honest frame of 3,000 methods by replicas
	// stays below it.
	MaxDecodedBytes = 128 << 20
)

// FrameToProto returns r as a message. Its source is not part of it: it is sent
// once, see SourceToProto. A histogram that cannot be encoded is left out and
// its observations count as dropped.
func FrameToProto(r *report.Report) *hedgedv1.Frame {
	e := encoder{frame: &hedgedv1.Frame{
		Sequence:   r.Sequence,
		Service:    r.Service.String(),
		Interval:   durationpb.New(r.Interval),
		Generation: GenerationToProto(r.Generation),
		Early:      r.Early,
		Silent:     r.Silent,
		Dropped:    r.Dropped,
	}}
	if len(r.Methods) > 0 {
		e.frame.Methods = make(map[string]*hedgedv1.MethodReport, len(r.Methods))
		for name, m := range r.Methods {
			e.frame.Methods[name] = e.method(m)
		}
	}
	return e.frame
}

// encoder builds one frame. All its histograms stand in one buffer.
type encoder struct {
	frame *hedgedv1.Frame
	buf   []byte
}

func (e *encoder) method(m *report.Method) *hedgedv1.MethodReport {
	out := &hedgedv1.MethodReport{
		Calls:           m.Calls,
		Safe:            m.Safe,
		Eligible:        m.Eligible,
		Hedges:          m.Hedges,
		CancelledUnsent: m.CancelledUnsent,
		Wins:            m.Wins,
		Failures:        m.Failures,
		Observed:        m.Observed,
		Hedged:          e.histogram(&m.Hedged),
		Unhedged:        e.histogram(&m.Unhedged),
		HeldOut:         e.histogram(&m.HeldOut),
	}
	for _, p := range m.Pairs {
		out.Pairs = append(out.Pairs, int32(p.Primary), int32(p.Hedge))
	}
	for i, n := range m.Suppressed {
		if n == 0 {
			continue
		}
		if out.Suppressed == nil {
			out.Suppressed = make(map[string]uint64)
		}
		out.Suppressed[policy.Suppression(i).String()] = n
	}
	if len(m.Replicas) > 0 {
		out.Replicas = make(map[string]*hedgedv1.ReplicaReport, len(m.Replicas))
		for name, r := range m.Replicas {
			out.Replicas[name] = &hedgedv1.ReplicaReport{
				PrimaryCompleted: e.histogram(&r.Primary.Completed),
				PrimaryCensored:  e.histogram(&r.Primary.Censored),
				HedgeCompleted:   e.histogram(&r.Hedge.Completed),
				HedgeCensored:    e.histogram(&r.Hedge.Censored),
				Failed:           r.Failed,
			}
		}
	}
	if m.Served != (report.Served{}) {
		out.Server = &hedgedv1.ServerReport{
			Attempts:  m.Served.Attempts,
			Hedges:    m.Served.Hedges,
			Cancelled: m.Served.Cancelled,
			Wasted:    durationpb.New(m.Served.Wasted),
		}
	}
	return out
}

func (e *encoder) histogram(h *estimator.Histogram) []byte {
	n := h.Count()
	if n == 0 {
		return nil
	}
	start := len(e.buf)
	buf, err := h.AppendBinary(e.buf)
	if err != nil || len(buf)-start > MaxHistogramBytes {
		e.frame.Dropped += n
		return nil
	}
	e.buf = buf
	return buf[start:len(buf):len(buf)]
}

// FrameFromProto returns what src reported, or an error that names field, value
// and bound. Nothing of a frame that is out of bounds is used.
func FrameFromProto(src report.Source, f *hedgedv1.Frame) (*report.Report, error) {
	if f == nil {
		return nil, errors.New("frame: is absent")
	}
	if f.GetSequence() == 0 {
		return nil, errors.New("sequence: 0, want at least 1")
	}
	service, err := serviceKey(f.GetService())
	if err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	interval, err := duration("interval", f.GetInterval(), MaxInterval)
	if err != nil {
		return nil, err
	}
	if err := count("dropped", f.GetDropped()); err != nil {
		return nil, err
	}
	r := &report.Report{
		Source:     src,
		Service:    service,
		Sequence:   f.GetSequence(),
		Interval:   interval,
		Generation: GenerationFromProto(f.GetGeneration()),
		Early:      f.GetEarly(),
		Silent:     f.GetSilent(),
		Dropped:    f.GetDropped(),
	}
	n := len(f.GetMethods())
	switch {
	case n > policy.MaxMethods:
		return nil, fmt.Errorf("methods: %d, want at most %d", n, policy.MaxMethods)
	case n > 0:
		r.Methods = make(map[string]*report.Method, n)
	}
	d := decoder{kind: src.Kind}
	for name, m := range f.GetMethods() {
		if err := policy.ValidateName("methods key", name); err != nil {
			return nil, err
		}
		if r.Methods[name], err = d.method(m); err != nil {
			return nil, fmt.Errorf("methods[%q].%w", name, err)
		}
	}
	return r, nil
}

// decoder reads one frame of a source of one kind.
type decoder struct {
	kind  report.Kind
	bytes int // most that the histograms so far may take
}

func (d *decoder) method(m *hedgedv1.MethodReport) (*report.Method, error) {
	out := &report.Method{
		Calls:           m.GetCalls(),
		Safe:            m.GetSafe(),
		Eligible:        m.GetEligible(),
		Hedges:          m.GetHedges(),
		CancelledUnsent: m.GetCancelledUnsent(),
		Wins:            m.GetWins(),
		Failures:        m.GetFailures(),
		Observed:        m.GetObserved(),
	}
	for _, err := range [...]error{
		count("calls", out.Calls),
		count("hedges", out.Hedges),
		part("safe", out.Safe, "calls", out.Calls),
		part("eligible", out.Eligible, "safe", out.Safe),
		part("cancelled_unsent", out.CancelledUnsent, "hedges", out.Hedges),
		part("wins", out.Wins, "calls", out.Calls),
		part("failures", out.Failures, "calls", out.Calls),
		part("observed", out.Observed, "hedges", out.Hedges),
		d.histogram("hedged", &out.Hedged, m.GetHedged()),
		d.histogram("unhedged", &out.Unhedged, m.GetUnhedged()),
		d.histogram("held_out", &out.HeldOut, m.GetHeldOut()),
	} {
		if err != nil {
			return nil, err
		}
	}
	var err error
	if out.Pairs, err = pairs(m.GetPairs()); err != nil {
		return nil, err
	}
	if n := len(m.GetSuppressed()); n > MaxSuppressed {
		return nil, fmt.Errorf("suppressed: %d keys, want at most %d", n, MaxSuppressed)
	}
	for name, n := range m.GetSuppressed() {
		s, ok := suppressions[name]
		if !ok {
			return nil, fmt.Errorf("suppressed: key %.40q is unknown, want a suppression such as %q", name, policy.SuppressedBudget)
		}
		if err := part("", n, "calls", out.Calls); err != nil {
			return nil, fmt.Errorf("suppressed[%q]%w", name, err)
		}
		out.Suppressed[s] = n
	}
	n := len(m.GetReplicas())
	switch {
	case n > policy.MaxReplicas:
		return nil, fmt.Errorf("replicas: %d, want at most %d", n, policy.MaxReplicas)
	case n > 0:
		out.Replicas = make(map[string]*report.Replica, n)
	}
	for name, r := range m.GetReplicas() {
		if err := policy.ValidateName("replicas key", name); err != nil {
			return nil, err
		}
		replica, err := d.replica(r)
		if err != nil {
			return nil, fmt.Errorf("replicas[%q].%w", name, err)
		}
		out.Replicas[name] = replica
	}
	if s := m.GetServer(); s != nil {
		if d.kind != report.Server {
			return nil, errors.New("server: set by a client, want it absent: only servers send it")
		}
		served, err := serverReport(s)
		if err != nil {
			return nil, fmt.Errorf("server.%w", err)
		}
		out.Served = served
	}
	return out, nil
}

// pairs reads buckets of primaries and hedges, in turn.
func pairs(buckets []int32) ([]estimator.Pair, error) {
	switch n := len(buckets); {
	case n == 0:
		return nil, nil
	case n%2 != 0:
		return nil, fmt.Errorf("pairs: %d buckets, want two for each pair", n)
	case n > 2*report.MaxPairs:
		return nil, fmt.Errorf("pairs: %d, want at most %d", n/2, report.MaxPairs)
	}
	out := make([]estimator.Pair, 0, len(buckets)/2)
	for i, b := range buckets {
		if b < estimator.MinIndex-1 || b > estimator.MaxIndex {
			return nil, fmt.Errorf("pairs[%d]: bucket %d, want %d to %d", i/2, b, estimator.MinIndex-1, estimator.MaxIndex)
		}
		if i%2 == 1 {
			out = append(out, estimator.Pair{Primary: int16(buckets[i-1]), Hedge: int16(b)})
		}
	}
	return out, nil
}

func (d *decoder) replica(m *hedgedv1.ReplicaReport) (*report.Replica, error) {
	r := &report.Replica{Failed: m.GetFailed()}
	for _, err := range [...]error{
		d.histogram("primary_completed", &r.Primary.Completed, m.GetPrimaryCompleted()),
		d.histogram("primary_censored", &r.Primary.Censored, m.GetPrimaryCensored()),
		d.histogram("hedge_completed", &r.Hedge.Completed, m.GetHedgeCompleted()),
		d.histogram("hedge_censored", &r.Hedge.Censored, m.GetHedgeCensored()),
		count("failed", r.Failed),
	} {
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

func serverReport(m *hedgedv1.ServerReport) (report.Served, error) {
	s := report.Served{Attempts: m.GetAttempts(), Hedges: m.GetHedges(), Cancelled: m.GetCancelled()}
	for _, err := range [...]error{
		count("attempts", s.Attempts),
		part("hedges", s.Hedges, "attempts", s.Attempts),
		part("cancelled", s.Cancelled, "attempts", s.Attempts),
	} {
		if err != nil {
			return report.Served{}, err
		}
	}
	var err error
	s.Wasted, err = duration("wasted", m.GetWasted(), MaxWasted)
	return s, err
}

// count checks a number of things that happened in one interval.
func count(field string, n uint64) error {
	if n > MaxCount {
		return fmt.Errorf("%s: %d, want at most %d", field, n, uint64(MaxCount))
	}
	return nil
}

// part checks a count that is part of another. "No part exceeds its whole by
// more than the calls under way" (report.proto): a call that was sent in one
// interval may become eligible, be hedged or end in a later one.
func part(field string, n uint64, of string, whole uint64) error {
	if err := count(field, n); err != nil {
		return err
	}
	if n > whole+MaxUnderWay {
		return fmt.Errorf("%s: %d, want at most %d more than the %d of %s", field, n, MaxUnderWay, whole, of)
	}
	return nil
}

// What a decoded histogram takes, see estimator.Histogram: a page for each octave
// that it touches, of which a byte on the wire can touch one, and their index.
const (
	octaves     = (estimator.MaxIndex + 1 - estimator.MinIndex) >> estimator.Scale
	octaveBytes = 8 << estimator.Scale
	indexBytes  = 2 * 16 * octaves
)

// histogram decodes b into h; no bytes are no observations.
func (d *decoder) histogram(field string, h *estimator.Histogram, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if len(b) > MaxHistogramBytes {
		return fmt.Errorf("%s: %d bytes, want at most %d", field, len(b), MaxHistogramBytes)
	}
	d.bytes += min(len(b), octaves)*octaveBytes + indexBytes
	if d.bytes > MaxDecodedBytes {
		return fmt.Errorf("%s: the frame's histograms so far may take %d bytes decoded, want at most %d", field, d.bytes, MaxDecodedBytes)
	}
	if err := h.UnmarshalBinary(b); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if n := h.Count(); n > MaxCount {
		return fmt.Errorf("%s: %d observations, want at most %d", field, n, uint64(MaxCount))
	}
	return nil
}
