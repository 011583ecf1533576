// Package hedged is the command line of the daemon.
package hedged

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/internal/config"
	"github.com/hedged-project/hedged/storage/bolt"
)

// Ready is the one line of JSON that the daemon prints on standard output once
// it serves.
type Ready struct {
	Ready    bool   `json:"ready"` // always true
	GRPC     string `json:"grpc"`  // HOST:PORT of reports, policies and the admin API
	HTTP     string `json:"http"`  // HOST:PORT of /metrics, /healthz and /readyz
	StateDir string `json:"state_dir"`
	PID      int    `json:"pid"`
	Version  string `json:"version"`
}

// NewCommand returns the daemon's command. It prints the ready line to stdout
// and logs to stderr, one JSON object a line.
func NewCommand(stdout, stderr io.Writer) *cobra.Command {
	o := &options{base: config.Default(defaultStateDir()), stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "hedged",
		Short: "Adaptive hedging controller",
		Long: `hedged is the control plane for hedged requests: it takes what clients and
servers measured, decides for every service and method when to hedge and how
much to spend, and pushes the result to the clients.

It serves gRPC (reports, policies, the admin API that hedgectl uses) and HTTP
(/metrics, /healthz, /readyz) on loopback, keeps its state in a directory, and
prints one line of JSON with its addresses when it is ready. SIGTERM ends it.

Settings come from a YAML file (--config), from environment variables (a flag's
name in capitals: HEDGED_LOG_LEVEL for --log-level) and from flags; the later
outweigh the earlier. SIGHUP or a change of the file has it read again: a file
with a mistake changes nothing, and status, metrics and the log say why.

Only the services that the file names are hedged; of all others hedged measures
and advises. 'hedgectl on SERVICE' switches one on by hand.`,
		Example: `  hedged
  hedged --config /etc/hedged/hedged.yaml
  hedged --grpc 127.0.0.1:0 --http 127.0.0.1:0 --state-dir /var/lib/hedged
  hedged config print --target 3% > hedged.yaml`,
		Args:    cli.Args(cobra.NoArgs),
		Version: cli.Version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.PersistentFlags()
	f.StringVar(&o.path, "config", os.Getenv(fileVariable), "YAML `FILE` of settings; also $"+fileVariable)
	o.given = config.Flags(f, o.base)
	cmd.AddCommand(o.config())
	return cmd
}

// hinted says what to do about what another process has.
func hinted(err error) error {
	switch {
	case errors.Is(err, bolt.ErrLocked):
		return fmt.Errorf("%w\nIs a daemon running already? A second one needs another directory: --state-dir", err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w\nIs a daemon running already? Choose another port with --grpc or --http", err)
	default:
		return err
	}
}

// defaultStateDir follows the XDG base directory specification.
func defaultStateDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "hedged")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "hedged-state"
	}
	return filepath.Join(home, ".local", "state", "hedged")
}
