package hedgectl

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/internal/cli/hedged"
	"github.com/hedged-project/hedged/internal/demo"
)

// children are the hidden commands that the demo starts in processes of their
// own. They end when their standard input does, so that none outlives it.
func children(stdout, stderr io.Writer) []*cobra.Command {
	daemon := hedged.NewCommand(stdout, stderr)
	daemon.Use, daemon.Hidden = "daemon", true
	run := daemon.RunE
	daemon.RunE = func(cmd *cobra.Command, args []string) error {
		defer endWithInput(cmd)()
		return run(cmd, args)
	}
	burn := &cobra.Command{
		Use:    "burn",
		Hidden: true,
		Args:   cli.Args(cobra.NoArgs),
		Run: func(cmd *cobra.Command, _ []string) {
			defer endWithInput(cmd)()
			demo.Burn(cmd.Context())
		},
	}
	return []*cobra.Command{daemon, burn}
}

// endWithInput ends the command's context with the process's standard input.
func endWithInput(cmd *cobra.Command) context.CancelFunc {
	ctx, stop := context.WithCancel(cmd.Context())
	cmd.SetContext(ctx)
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it as well
	}()
	return stop
}
