package hedgectl

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

func commandOf(service string, o *hedgedv1.Override) *hedgedv1.HistoryEntry {
	return &hedgedv1.HistoryEntry{Service: service, What: &hedgedv1.HistoryEntry_Override{Override: o}}
}

// What stood before the latest command of the scope comes back; what is over
// by then does not.
func TestBeforeLatest(t *testing.T) {
	off := &hedgedv1.Override{Mode: hedgedv1.Mode_MODE_OFF}
	on := &hedgedv1.Override{Mode: hedgedv1.Mode_MODE_ACTIVE}
	over := &hedgedv1.Override{Mode: hedgedv1.Mode_MODE_OFF, ExpiresAt: timestamppb.New(time.Now().Add(-time.Hour))}
	entries := func(list ...*hedgedv1.HistoryEntry) []*hedgedv1.HistoryEntry { return list }
	for name, c := range map[string]struct {
		entries []*hedgedv1.HistoryEntry
		service string
		want    string
	}{
		"two commands":         {entries(commandOf("default/a", on), commandOf("default/a", off)), "a", "off"},
		"one command":          {entries(commandOf("default/a", on)), "a", "released"},
		"of another service":   {entries(commandOf("default/a", on), commandOf("default/b", off), commandOf("default/a", off)), "a", "off"},
		"about all":            {entries(commandOf("default/a", on), commandOf("", off), commandOf("", on)), "", "active"},
		"over meanwhile":       {entries(commandOf("default/a", on), commandOf("default/a", over)), "a", "released"},
		"changes do not count": {entries(&hedgedv1.HistoryEntry{Service: "default/a", What: &hedgedv1.HistoryEntry_Change{}}, commandOf("default/a", on)), "a", "released"},
	} {
		got, err := beforeLatest(c.entries, c.service)
		if err != nil || commanded(got) != c.want {
			t.Errorf("%s: %s (%v), want %s", name, commanded(got), err, c.want)
		}
	}
	if _, err := beforeLatest(nil, "a"); err == nil {
		t.Error("nothing to take back is no error")
	}
}

// A service config says what gRFC A6 lets it say, and nothing of a policy that is not in force.
func TestServiceConfig(t *testing.T) {
	method := func(d time.Duration, p float64) *hedgedv1.MethodPolicy {
		return &hedgedv1.MethodPolicy{Delay: durationpb.New(d), Probability: p, MaxAttempts: 3, NonFatalStatusCodes: []uint32{14}}
	}
	p := &hedgedv1.ServicePolicy{
		Mode:          hedgedv1.Mode_MODE_ACTIVE,
		Throttle:      &hedgedv1.Throttle{MaxTokens: 10, TokenRatio: .1},
		DefaultMethod: method(0, 1),
		Methods: map[string]*hedgedv1.MethodPolicy{
			"/shop.Cart/Get":  method(15*time.Millisecond, 1),
			"/shop.Cart/List": method(20*time.Millisecond, .3),
			"GET /cart":       method(time.Second, 1),
		},
	}
	const want = `{"methodConfig":[{"name":[{"service":"shop.Cart","method":"Get"}],` +
		`"hedgingPolicy":{"maxAttempts":3,"hedgingDelay":"0.015s","nonFatalStatusCodes":["UNAVAILABLE"]}},` +
		`{"name":[{"service":"shop.Cart","method":"List"}]}],"retryThrottling":{"maxTokens":10,"tokenRatio":0.1}}`
	if got := config(t, p); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	p.Mode = hedgedv1.Mode_MODE_SHADOW
	if got := config(t, p); got != `{"methodConfig":[]}` {
		t.Errorf("in shadow: %s, want no method", got)
	}
}

func config(t *testing.T, p *hedgedv1.ServicePolicy) string {
	t.Helper()
	var b strings.Builder
	if err := writeServiceConfig(&b, p); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("\n", "", "  ", "", ": ", ":").Replace(b.String())
}
