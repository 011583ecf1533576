package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hedged-project/hedged/control"
)

// Config is everything that a daemon is told at its start. DefaultConfig gives
// the defaults named here; a zero field is refused unless it says what zero means.
type Config struct {
	// GRPCAddr is the address of reports, policies and the admin API: 127.0.0.1:7946.
	// There is no authentication yet, so it must be on loopback.
	GRPCAddr string
	// HTTPAddr is the address of /metrics, /healthz and /readyz: 127.0.0.1:7947. On loopback too.
	HTTPAddr string
	// StateDir holds the state file; it is created when absent. No default.
	StateDir string
	// Services says how services are configured. Without rules, all are in shadow.
	Services Services
	// File is what the configuration was read from, for status. Empty: no file.
	File string
	// Cadence is the time between reports that clients are asked for, 100 ms to 1 min: 1 s.
	Cadence time.Duration
	// ShutdownTimeout bounds the time from the end of Run's context to its return: 5 s.
	ShutdownTimeout time.Duration
	// Version is what the daemon says of itself.
	Version string
	// Logger is told what happens. Nil: slog.Default.
	Logger *slog.Logger
	// Listen opens a listener. Nil: net.Listen.
	Listen func(network, address string) (net.Listener, error)
}

// DefaultConfig returns the defaults; StateDir is left to the caller.
func DefaultConfig() Config {
	return Config{
		GRPCAddr:        "127.0.0.1:7946",
		HTTPAddr:        "127.0.0.1:7947",
		Services:        Services{Default: control.DefaultConfig()},
		Cadence:         time.Second,
		ShutdownTimeout: 5 * time.Second,
	}
}

// Validate reports the first field that is out of bounds, with its value and the bound.
func (c *Config) Validate() error {
	if err := checkLoopback("grpc address", c.GRPCAddr); err != nil {
		return err
	}
	if err := checkLoopback("http address", c.HTTPAddr); err != nil {
		return err
	}
	if c.StateDir == "" {
		return fmt.Errorf("state directory: is empty")
	}
	if c.Cadence < 100*time.Millisecond || c.Cadence > time.Minute {
		return fmt.Errorf("cadence: %v, want 100ms to 1m", c.Cadence)
	}
	if c.ShutdownTimeout <= 0 || c.ShutdownTimeout > 5*time.Minute {
		return fmt.Errorf("shutdown timeout: %v, want more than 0 and at most 5m", c.ShutdownTimeout)
	}
	return c.Services.Validate()
}

// checkLoopback refuses an address that other machines could reach: whoever
// reaches the daemon may stop a fleet's hedging.
func checkLoopback(field, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s: %q: %w, want HOST:PORT", field, addr, err)
	}
	if isLoopback(host) {
		return nil
	}
	return fmt.Errorf("%s: %q is not a loopback address, want 127.0.0.1, [::1] or localhost: the daemon has no authentication yet", field, addr)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
