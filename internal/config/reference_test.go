package config

import (
	"os"
	"strings"
	"testing"

	"github.com/hedged-project/hedged/internal/golden"
)

// The tables of the documentation are those of the code.
func TestReference(t *testing.T) {
	var want strings.Builder
	want.WriteString("\n")
	if err := Reference(&want); err != nil {
		t.Fatal(err)
	}
	golden.CheckBelow(t, "../../docs/config.md", "-update -->", want.String(), "go test ./internal/config -run Reference -update")
}

// The file of the documentation is one.
func TestDocumentedFile(t *testing.T) {
	blob, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(blob), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	c, err := load(t, text, Input{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Daemon.Services.Rules); n != 2 {
		t.Errorf("%d services, want 2", n)
	}
}
