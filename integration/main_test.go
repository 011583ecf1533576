package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/internal/cli/hedgectl"
	"github.com/hedged-project/hedged/internal/cli/hedged"
)

// commandVar makes the test binary be one of the commands, in a process of its
// own: what is tested is what was just built, race detector included. The daemon
// that the demonstration starts inherits it.
const commandVar = "HEDGED_TEST_COMMAND"

func TestMain(m *testing.M) {
	switch name := os.Getenv(commandVar); name {
	case "hedged":
		os.Exit(cli.Execute(hedged.NewCommand(os.Stdout, os.Stderr)))
	case "hedgectl":
		os.Exit(cli.Execute(hedgectl.NewCommand(os.Stdout, os.Stderr)))
	case "":
		goleak.VerifyTestMain(m)
	default:
		fmt.Fprintf(os.Stderr, "%s: %q is no command\n", commandVar, name)
		os.Exit(1)
	}
}

// command prepares a run of hedged or hedgectl.
func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	// A race-enabled process would wait for a second before it ends.
	cmd.Env = append(os.Environ(), commandVar+"="+name, "GORACE=atexit_sleep_ms=0")
	return cmd
}
