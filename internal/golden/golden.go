// Package golden holds files against what the code says that they should. Tests use
// it; with their flag -update they write the files anew instead.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write files anew that are held against what the code says")

// Check fails t unless the file is want. again is the command that writes it anew.
func Check(t testing.TB, file, want, again string) {
	t.Helper()
	check(t, file, "", want, again)
}

// CheckBelow is Check for what stands below the line of the file that ends in mark.
func CheckBelow(t testing.TB, file, mark, want, again string) {
	t.Helper()
	blob, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(blob), mark+"\n")
	if !ok {
		t.Fatalf("%s has no line that ends in %q", file, mark)
	}
	check(t, file, head+mark+"\n", want, again)
}

func check(t testing.TB, file, head, want, again string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(head+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	blob, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimPrefix(string(blob), head); got != want {
		t.Errorf("want\n%s\nbut %s has\n%s\nIf that is intended, run %s", want, file, got, again)
	}
}
