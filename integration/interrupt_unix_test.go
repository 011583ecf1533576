//go:build unix

package integration_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ctrl-C in the middle: the whole process group gets it, and neither a process
// nor a directory is left behind.
func TestInterruptedDemo(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]bool{"from a terminal": true, "from a supervisor": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := command("hedgectl", "demo", "--calls", "100000", "--in-flight", "4", "--scenes", "none")
			cmd.Env = append(cmd.Env, "TMPDIR="+dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			stderr := &output{}
			cmd.Stderr = stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await(t, "the daemon's state is there", func() bool {
				entries, err := os.ReadDir(dir)
				return err == nil && len(entries) == 1
			})
			time.Sleep(time.Second) // anywhere in the middle
			target := cmd.Process.Pid
			if group {
				target = -target
			}
			if err := syscall.Kill(target, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			err := cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "interrupted") {
				t.Errorf("exit code %d (%v), on standard error %q; want 1 and that it was interrupted", code, err, stderr)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
			// No process of its group lives any more, the daemon included.
			await(t, "all processes have ended", func() bool {
				return errors.Is(syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH)
			})
		})
	}
}
