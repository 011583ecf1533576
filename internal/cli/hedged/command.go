// Package hedged is the command line of the daemon.
package hedged

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hedged-project/hedged/control"
	"github.com/hedged-project/hedged/daemon"
	"github.com/hedged-project/hedged/internal/cli"
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
	cfg := daemon.DefaultConfig()
	var level slog.Level
	cmd := &cobra.Command{
		Use:   "hedged",
		Short: "Adaptive hedging controller",
		Long: `hedged is the control plane for hedged requests: it takes what clients and
servers measured, decides for every service and method when to hedge and how
much to spend, and pushes the result to the clients.

It serves gRPC (reports, policies, the admin API that hedgectl uses) and HTTP
(/metrics, /healthz, /readyz) on loopback, keeps its state in a directory, and
prints one line of JSON with its addresses when it is ready. SIGTERM ends it.

A service that nobody switched on is in shadow: hedged measures and advises.
Switch it on with 'hedgectl on SERVICE'.`,
		Example: `  hedged
  hedged --grpc 127.0.0.1:0 --http 127.0.0.1:0 --state-dir /var/lib/hedged
  hedged --target 0.03`,
		Args:    cli.Args(cobra.NoArgs),
		Version: cli.Version(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Version = cli.Version()
			cfg.Logger = slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level}))
			if err := cfg.Validate(); err != nil {
				return cli.Usagef("%s", flagged(err))
			}
			d, err := daemon.New(cfg)
			if err != nil {
				return hinted(err)
			}
			ready := Ready{
				Ready: true, GRPC: d.GRPCAddr(), HTTP: d.HTTPAddr(),
				StateDir: cfg.StateDir, PID: os.Getpid(), Version: cfg.Version,
			}
			// The listeners are open: whoever connects now is served in a moment.
			if err := json.NewEncoder(stdout).Encode(ready); err != nil {
				return fmt.Errorf("print ready line: %w", err)
			}
			return d.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.GRPCAddr, "grpc", cfg.GRPCAddr, "`HOST:PORT` of reports, policies and the admin API, on loopback; port 0: any free one")
	f.StringVar(&cfg.HTTPAddr, "http", cfg.HTTPAddr, "`HOST:PORT` of /metrics, /healthz and /readyz, on loopback; port 0: any free one")
	f.StringVar(&cfg.StateDir, "state-dir", defaultStateDir(), "`DIRECTORY` of the state file; created when absent")
	f.Float64Var(&cfg.Service.Target, "target", cfg.Service.Target, fmt.Sprintf("most extra load that hedges may cause, as a `RATIO` of calls, %g to %g", control.MinTarget, control.MaxTarget))
	f.DurationVar(&cfg.Cadence, "cadence", cfg.Cadence, "`TIME` between the reports of a client, 100ms to 1m")
	f.DurationVar(&cfg.ShutdownTimeout, "shutdown-timeout", cfg.ShutdownTimeout, "longest `TIME` from SIGTERM to the end, more than 0s and at most 5m")
	f.TextVar(&level, "log-level", level, "least `LEVEL` to log: debug, info, warn or error")
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

// flagged names the flag in an error that names a field of daemon.Config.
func flagged(err error) string {
	field, rest, _ := strings.Cut(err.Error(), ":")
	switch field {
	case "grpc address":
		field = "grpc"
	case "http address":
		field = "http"
	case "state directory":
		field = "state-dir"
	case "shutdown timeout":
		field = "shutdown-timeout"
	}
	return "--" + field + ":" + rest
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
