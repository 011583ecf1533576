package wire

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/report"
)

func clientSource() report.Source {
	return report.Source{ID: "web-1", Incarnation: 1_700_000_000_000_000_000, Zone: "a", Version: "v0.1.0"}
}

func TestSourceRoundTrip(t *testing.T) {
	maybe := rapid.OneOf(rapid.Just(""), names)
	rapid.Check(t, func(t *rapid.T) {
		s := report.Source{
			ID:          names.Draw(t, "id"),
			Incarnation: rapid.Uint64Min(1).Draw(t, "incarnation"),
			Zone:        maybe.Draw(t, "zone"),
			Version:     maybe.Draw(t, "version"),
		}
		if rapid.Bool().Draw(t, "server") {
			s.Kind, s.Replica = report.Server, maybe.Draw(t, "replica")
		}
		got, err := SourceFromProto(overTheWire(t, SourceToProto(s)))
		if err != nil {
			t.Fatal(err)
		}
		if got != s {
			t.Fatalf("came back as %+v, want %+v", got, s)
		}
	})
}

func TestSourceRefused(t *testing.T) {
	long := strings.Repeat("x", 10<<10)
	for _, test := range []struct {
		name  string
		spoil func(s *hedgedv1.Source)
		want  string
	}{
		{"no id", func(s *hedgedv1.Source) { s.Id = "" }, `source.id: is empty, want 1 to 256 bytes`},
		{"10 KB id", func(s *hedgedv1.Source) { s.Id = long }, `source.id: "xxxxx`},
		{"id with a line break", func(s *hedgedv1.Source) { s.Id = "a\nb" }, `source.id: "a\nb" has the unprintable character U+000A at byte 1`},
		{"10 KB zone", func(s *hedgedv1.Source) { s.Zone = long }, `is 10240 bytes long, want at most 256`},
		{"10 KB version", func(s *hedgedv1.Source) { s.Version = long }, `source.version: "xxxxx`},
		{"no incarnation", func(s *hedgedv1.Source) { s.Incarnation = 0 }, `source.incarnation: 0, want more than 0`},
		{"no kind", func(s *hedgedv1.Source) { s.Kind = 0 }, `source.kind: 0, want 1 (client) or 2 (server)`},
		{"unknown kind", func(s *hedgedv1.Source) { s.Kind = 9 }, `source.kind: 9, want 1 (client) or 2 (server)`},
		{"a client's replica", func(s *hedgedv1.Source) { s.Replica = "r1" }, `source.replica: "r1" of a client, want it empty`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := SourceToProto(clientSource())
			test.spoil(m)
			_, err := SourceFromProto(m)
			refused(t, err, test.want)
		})
	}
	if _, err := SourceFromProto(nil); err == nil {
		t.Error("no error for no source")
	}
}
