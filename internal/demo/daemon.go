package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/cli/hedged"
)

// readyTimeout is how long a daemon may take to say that it is ready.
const readyTimeout = 10 * time.Second

// daemonProcess is the daemon: this binary again, so that killing it is real.
type daemonProcess struct {
	command []string // without addresses
	ready   hedged.Ready
	cmd     *exec.Cmd
	exited  chan struct{}

	conn  *grpc.ClientConn
	admin hedgedv1.AdminServiceClient
}

// startDaemon starts command with addresses that are free, and waits until it is ready.
func startDaemon(ctx context.Context, command []string) (*daemonProcess, error) {
	d := &daemonProcess{command: command}
	if err := d.start(ctx, "127.0.0.1:0", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(d.ready.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to the daemon: %w", err)
	}
	d.conn, d.admin = conn, hedgedv1.NewAdminServiceClient(conn)
	return d, nil
}

func (d *daemonProcess) start(ctx context.Context, grpcAddr, httpAddr string) error {
	args := slices.Concat(d.command[1:], []string{"--grpc", grpcAddr, "--http", httpAddr})
	cmd := exec.CommandContext(ctx, d.command[0], args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var stderr tail
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // it ends with us
		return fmt.Errorf("start daemon: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start daemon: %w", err)
	}
	d.cmd, d.exited = cmd, make(chan struct{})
	lines := make(chan []byte, 1)
	go func() {
		defer close(d.exited)
		defer close(lines)
		r := bufio.NewReader(stdout)
		if line, err := r.ReadBytes('\n'); err == nil {
			lines <- line
		}
		_, _ = io.Copy(io.Discard, r) // until it closes its end
		_ = cmd.Wait()                // how it ended does not matter: whoever ended it knows
	}()
	select {
	case line, ok := <-lines:
		if !ok {
			<-d.exited
			return fmt.Errorf("daemon did not start: %s", stderr.String())
		}
		if err := json.Unmarshal(line, &d.ready); err != nil {
			return fmt.Errorf("daemon's ready line %q: %w", line, err)
		}
		return nil
	case <-time.After(readyTimeout):
		d.kill()
		return fmt.Errorf("daemon is not ready after %v: %s", readyTimeout, stderr.String())
	case <-ctx.Done():
		<-d.exited
		return ctx.Err()
	}
}

// kill ends the daemon as a crash would, and returns when it has ended.
func (d *daemonProcess) kill() {
	_ = d.cmd.Process.Kill() // an error means that it has ended already
	<-d.exited
}

// restart starts the daemon again on the addresses that it had.
func (d *daemonProcess) restart(ctx context.Context) error {
	return d.start(ctx, d.ready.GRPC, d.ready.HTTP)
}

// close ends the daemon in order.
func (d *daemonProcess) close() {
	d.conn.Close()
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended already
	<-d.exited
}

// set overrides the mode of a service; target 0 leaves it as configured.
func (d *daemonProcess) set(ctx context.Context, service string, mode hedgedv1.Mode, target float64) error {
	o := &hedgedv1.Override{Mode: mode, Author: "demo", Reason: "demonstration"}
	if target != 0 {
		o.Target = &target
	}
	_, err := d.admin.SetOverride(ctx, &hedgedv1.SetOverrideRequest{
		Scope:    &hedgedv1.SetOverrideRequest_Service{Service: service},
		Override: o,
	}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("override %s: %w", service, err)
	}
	return nil
}

// status returns what the daemon says of a service.
func (d *daemonProcess) status(ctx context.Context, service string) (*hedgedv1.ServiceStatus, error) {
	r, err := d.admin.ListServices(ctx, &hedgedv1.ListServicesRequest{Service: service}, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", service, err)
	}
	return r.GetServices()[0], nil
}

// tail keeps the last lines that a process wrote.
type tail struct {
	mu   sync.Mutex
	text string
}

func (t *tail) Write(p []byte) (int, error) {
	const kept = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text += string(p)
	t.text = t.text[max(0, len(t.text)-kept):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.text)
}

// stateDir makes a directory for the daemon's state; remove deletes it.
func stateDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "hedged-demo-")
	if err != nil {
		return "", nil, fmt.Errorf("state directory: %w", err)
	}
	return dir, func() { os.RemoveAll(dir) }, nil
}
