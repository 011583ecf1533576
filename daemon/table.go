package daemon

import (
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/internal/wire"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/xds"
)

// table is the policies in force: numbered, served to clients, saved behind.
// It is safe for concurrent use.
type table struct {
	state  *state.State
	cache  *xds.Cache
	logger *slog.Logger

	mu      sync.Mutex
	entries map[policy.Key]*entry
}

// entry is one published policy, with the hash of its content.
type entry struct {
	policy  *policy.Policy
	content string
}

func newTable(st *state.State, cache *xds.Cache, logger *slog.Logger) *table {
	return &table{state: st, cache: cache, logger: logger, entries: map[policy.Key]*entry{}}
}

// version is the one under which clients know the entry: its content and its
// generation. A stored policy keeps both over a restart, so what clients already
// hold is not sent again; the same content under a new generation is sent, so
// that they learn the one from which later changes count.
func (e *entry) version() string {
	g := e.policy.Generation
	return e.content + "-" + strconv.FormatUint(g.Epoch, 36) + "-" + strconv.FormatUint(g.Number, 36)
}

// stored is what a start finds of a service.
type stored struct {
	policy  *policy.Policy // nil: none, or none of use
	changes []change       // newest first
	series  series
}

// restore puts a stored policy in force under the generation that it has. It
// returns nothing where the blob cannot be used; the service then starts afresh.
func (t *table) restore(key policy.Key, blob []byte) stored {
	var m hedgedv1.ServiceRecord
	err := proto.Unmarshal(blob, &m)
	var p *policy.Policy
	if err == nil {
		p, err = wire.PolicyFromProto(m.GetPolicy())
	}
	if err == nil && p.Key != key {
		err = fmt.Errorf("name: %q, want %q", p.Key, key)
	}
	if err != nil {
		t.logger.Error("stored policy refused", "service", key.String(), "error", err)
		return stored{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries[key] = &entry{policy: p, content: wire.PolicyVersion(p)}
	s := stored{policy: p, series: seriesFromProto(m.GetSeries())}
	for _, c := range m.GetChanges()[:min(len(m.GetChanges()), maxChanges)] {
		s.changes = append(s.changes, changeFromProto(c))
	}
	return s
}

// resume serves a restored policy under the generation that it has.
func (t *table) resume(key policy.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.serve(t.entries[key], false)
}

// publish puts p in force and returns the policy that now is: p under a new
// generation, or the one before where the content is the same and anew is false.
// One that tightens does not wait for clients to answer what they were sent
// before. It waits for neither clients nor storage itself.
func (t *table) publish(p *policy.Policy, anew, tightens bool) (*policy.Policy, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	content := wire.PolicyVersion(p)
	if e := t.entries[p.Key]; e != nil && !anew && e.content == content {
		return e.policy, t.serve(e, false)
	}
	numbered := *p
	numbered.Generation = t.state.Next()
	e := &entry{policy: &numbered, content: content}
	if err := t.serve(e, tightens); err != nil {
		return nil, err
	}
	t.entries[p.Key] = e
	return e.policy, nil
}

// save has a service's policy, and what is shown of its past, written some time later.
func (t *table) save(p *policy.Policy, changes []change, past series) error {
	m := hedgedv1.ServiceRecord{Policy: wire.PolicyToProto(p, time.Now()), Series: seriesToProto(past)}
	for _, c := range changes {
		m.Changes = append(m.Changes, changeToProto(c))
	}
	blob, err := proto.Marshal(&m)
	if err != nil {
		return fmt.Errorf("marshal policy of %s: %w", p.Key, err)
	}
	t.state.SavePolicy(p.Key, blob)
	return nil
}

// serve hands an entry to the cache, which ignores a version that it has.
func (t *table) serve(e *entry, tightens bool) error {
	set := t.cache.Set
	if tightens {
		set = t.cache.SetUrgent
	}
	m := wire.PolicyToProto(e.policy, time.Now())
	if err := set(wire.ServicePolicyType, e.policy.Key.String(), m, e.version()); err != nil {
		return fmt.Errorf("publish policy of %s: %w", e.policy.Key, err)
	}
	return nil
}
