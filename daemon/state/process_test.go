package state_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/policy"
)

// runCommander is the child of the test below: it takes a generation and sets
// an override again and again, and prints both once the latter is durable.
func runCommander() bool {
	dir := os.Getenv("HEDGED_TEST_STATE")
	if dir == "" {
		return false
	}
	s, err := state.Open(dir, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		panic(err)
	}
	for {
		g := s.Next()
		o := state.Override{HasMode: true, Mode: policy.ModeOff, Reason: g.String()}
		s.SavePolicy(policy.Key{Tenant: "t", Service: "s"}, []byte(g.String()))
		if _, durable, _ := s.SetOverride(context.Background(), o, 0.05); durable {
			fmt.Println(g.Epoch, g.Number)
		}
	}
}

func startCommander(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HEDGED_TEST_STATE="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// A daemon is killed hard, 20 times, right after it acknowledged a command: the
// command is there afterwards, in one epoch no number was handed out twice, and
// the file is whole.
func TestKilledAfterAcknowledgement(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var last policy.Generation
	for round := range 20 {
		cmd, lines := startCommander(t, dir)
		for n := 0; lines.Scan(); n++ {
			if n == round%4 {
				_ = cmd.Process.Kill()
			}
			var g policy.Generation
			if _, err := fmt.Sscan(lines.Text(), &g.Epoch, &g.Number); err != nil {
				break // the last line was cut
			}
			if g.Compare(last) <= 0 || last.Epoch != 0 && g.Epoch != last.Epoch {
				t.Fatalf("round %d: %v follows %v", round, g, last)
			}
			last = g
		}
		_ = cmd.Wait()

		s, err := state.Open(dir, slog.New(slog.DiscardHandler), time.Now)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		o, ok := s.Effective(policy.Key{Tenant: "t", Service: "s"})
		var kept policy.Generation
		if _, err := fmt.Sscanf(o.Reason, "%d.%d", &kept.Epoch, &kept.Number); !ok || err != nil || kept.Compare(last) < 0 {
			t.Fatalf("round %d: the command kept is %+v, acknowledged was that of %v", round, o, last)
		}
		last = s.Next()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if aside, _ := os.ReadDir(dir); strings.Contains(fmt.Sprint(aside), "damaged") {
		t.Fatalf("a kill damaged the file: %v", aside)
	}
}
