package hedged

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hedged-project/hedged/daemon"
	"github.com/hedged-project/hedged/internal/cli"
	"github.com/hedged-project/hedged/internal/config"
)

// fileVariable names the configuration file where the flag does not.
const fileVariable = config.EnvPrefix + "CONFIG"

// options is what the commands share.
type options struct {
	base           *config.Config
	path           string            // of the configuration file; empty: none
	given          map[string]string // flags
	stdout, stderr io.Writer
}

// load reads the settings from where the command line says.
func (o *options) load() (*config.Config, error) {
	c, err := config.Load(o.base, config.Input{Path: o.path, Env: os.Environ(), Flags: o.given})
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return c, nil
}

// run is the daemon.
func (o *options) run(ctx context.Context) error {
	c, err := o.load()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(c.LogLevel)
	logger := slog.New(slog.NewJSONHandler(o.stderr, &slog.HandlerOptions{Level: level}))
	for _, w := range c.Warnings {
		logger.Warn(w)
	}
	c.Daemon.Version, c.Daemon.Logger = cli.Version(), logger
	d, err := daemon.New(c.Daemon)
	if err != nil {
		return hinted(err)
	}
	ready := Ready{
		Ready: true, GRPC: d.GRPCAddr(), HTTP: d.HTTPAddr(),
		StateDir: c.Daemon.StateDir, PID: os.Getpid(), Version: c.Daemon.Version,
	}
	// The listeners are open: whoever connects now is served in a moment.
	if err := json.NewEncoder(o.stdout).Encode(ready); err != nil {
		return fmt.Errorf("print ready line: %w", errors.Join(err, d.Close()))
	}
	super := supervised(os.Getenv, os.Getpid(), logger)
	defer super.close()
	super.ready("serving")
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		super.attend(watching, func(ctx context.Context) error { return answers(ctx, ready.HTTP) })
	})
	if o.path != "" {
		watch.Go(func() { o.follow(watching, d, c, level, super) })
	}
	err = d.Run(ctx)
	stop()
	watch.Wait()
	return err
}

// follow has the daemon take in the file anew after SIGHUP and when it changed,
// until ctx ends.
func (o *options) follow(ctx context.Context, d *daemon.Daemon, inForce *config.Config, level *slog.LevelVar, super *supervisor) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	changed := make(chan struct{}, 1)
	var watch sync.WaitGroup
	watch.Go(func() {
		config.Watch(ctx, o.path, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	defer watch.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		case <-changed:
		}
		super.reloading()
		next, err := o.load()
		if err == nil {
			err = inForce.Changeable(next)
		}
		if err == nil {
			err = d.Configure(next.Daemon.Services)
		}
		if err != nil {
			d.RefuseConfig(err)
			super.ready("configuration refused: " + err.Error())
			continue
		}
		inForce = next
		level.Set(next.LogLevel)
		super.ready("serving")
	}
}
