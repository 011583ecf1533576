package config

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the settings of docs/config.md anew")

// The tables of the documentation are those of the code.
func TestReference(t *testing.T) {
	const file, mark = "../../docs/config.md", "-update -->\n"
	blob, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, got, ok := strings.Cut(string(blob), mark)
	if !ok {
		t.Fatalf("%s has no line that ends in %q", file, mark)
	}
	var want strings.Builder
	want.WriteString("\n")
	if err := Reference(&want); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+mark+want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want.String() {
		t.Errorf("%s is not what the code says: run go test ./internal/config -run Reference -update", file)
	}
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
