package hedgectl

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hedged-project/hedged/internal/golden"
)

// The reference is what the commands say of themselves.
func TestReference(t *testing.T) {
	t.Setenv("HEDGED_DAEMON", "") // a default that is the machine's
	var want strings.Builder
	root := NewCommand(io.Discard, io.Discard)
	want.WriteString("# hedgectl\n\n<!-- Written by: go test ./internal/cli/hedgectl -run Reference -update -->\n\n")
	describe(&want, root)
	root.InitDefaultHelpFlag()
	fmt.Fprintf(&want, "Flags of every command:\n\n```text\n%s```\n\n", root.PersistentFlags().FlagUsages())
	commands(root, func(c *cobra.Command) {
		fmt.Fprintf(&want, "## %s\n\n%s.\n\n", c.CommandPath(), c.Short)
		describe(&want, c)
	})
	text := strings.TrimRight(want.String(), "\n") + "\n"
	golden.Check(t, "../../../docs/hedgectl.md", text, "go test ./internal/cli/hedgectl -run Reference -update")
}

// commands calls f with each command that is not hidden, in the order of help.
func commands(parent *cobra.Command, f func(*cobra.Command)) {
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			f(c)
			commands(c, f)
		}
	}
}

func describe(w *strings.Builder, c *cobra.Command) {
	if c.Long != "" {
		fmt.Fprintf(w, "```text\n%s\n```\n\n", c.Long)
	}
	if c.Runnable() {
		fmt.Fprintf(w, "```text\n%s\n```\n\n", c.UseLine())
	}
	if c.Example != "" {
		lines := strings.Split(c.Example, "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], "  ")
		}
		fmt.Fprintf(w, "```sh\n%s\n```\n\n", strings.Join(lines, "\n"))
	}
	if own := c.LocalNonPersistentFlags(); own.HasAvailableFlags() && c.HasParent() {
		fmt.Fprintf(w, "```text\n%s```\n\n", own.FlagUsages())
	}
}

// Every hedgectl command in the documentation is one, with flags that it has.
func TestDocumentedCommands(t *testing.T) {
	seen := 0
	for _, file := range []string{"README.md", "docs/quickstart.md", "docs/hedgectl.md", "docs/operations.md", "docs/config.md", "docs/client.md", "docs/controller.md", "docs/xds.md"} {
		blob, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		shell := false
		for line := range strings.Lines(string(blob)) {
			if strings.HasPrefix(line, "```") {
				shell = strings.HasPrefix(line, "```sh") || strings.HasPrefix(line, "```console")
				continue
			}
			line, _, _ = strings.Cut(strings.TrimPrefix(line, "$ "), " #")
			line, _, _ = strings.Cut(line, " | ")
			line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "go run ./cmd/"), "bin/")
			typed, ours := strings.CutPrefix(line, "hedgectl ")
			if !shell || !ours {
				continue
			}
			seen++
			root := NewCommand(io.Discard, io.Discard)
			c, rest, err := root.Find(words(typed))
			if err == nil && c == root {
				err = fmt.Errorf("no such command")
			}
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil {
				err = c.ValidateArgs(c.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: hedgectl %s: %v", file, typed, err)
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d commands were found", seen)
	}
}

// words splits a command line as a shell does that knows words and quotes only.
func words(line string) (out []string) {
	for _, m := range regexp.MustCompile(`"([^"]*)"|'([^']*)'|([^\s"']+)`).FindAllStringSubmatch(line, -1) {
		out = append(out, m[1]+m[2]+m[3])
	}
	return out
}
