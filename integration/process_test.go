package integration_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
	"github.com/hedged-project/hedged/internal/cli/hedged"
)

// patience is how long a test waits for what must happen. It is far above what
// it takes, so that a loaded machine fails no test.
const patience = time.Minute

// process is a daemon in a process of its own.
type process struct {
	ready hedged.Ready
	admin hedgedv1.AdminServiceClient

	cmd    *exec.Cmd
	log    *output // what it wrote to standard error
	exited chan struct{}
	err    error // of its end; set when exited is closed
}

// startDaemon starts hedged on free ports with its state in dir, and returns when
// it is ready.
func startDaemon(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p, err := launch(dir, "127.0.0.1:0", "127.0.0.1:0", args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	conn, err := grpc.NewClient(p.ready.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.admin = hedgedv1.NewAdminServiceClient(conn)
	return p
}

// launch starts hedged and waits for its ready line, or for its end.
func launch(dir, grpcAddr, httpAddr string, args ...string) (*process, error) {
	p, lines, err := spawn(dir, grpcAddr, httpAddr, args...)
	if err != nil {
		return nil, err
	}
	select {
	case line, ok := <-lines:
		if !ok {
			<-p.exited
			return nil, fmt.Errorf("hedged ended: %w\n%s", p.err, p.log)
		}
		if err := json.Unmarshal(line, &p.ready); err != nil {
			p.kill()
			return nil, fmt.Errorf("ready line %q: %w", line, err)
		}
		return p, nil
	case <-time.After(patience):
		p.kill()
		return nil, fmt.Errorf("hedged is not ready after %v\n%s", patience, p.log)
	}
}

// spawn starts hedged; lines gets the first line that it prints and is then closed.
func spawn(dir, grpcAddr, httpAddr string, args ...string) (_ *process, lines <-chan []byte, _ error) {
	args = append([]string{"--state-dir", dir, "--grpc", grpcAddr, "--http", httpAddr}, args...)
	p := &process{cmd: command("hedged", args...), log: &output{}, exited: make(chan struct{})}
	p.cmd.Stderr = p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, nil, err
	}
	first := make(chan []byte, 1)
	go func() {
		defer close(p.exited)
		defer close(first)
		r := bufio.NewReader(stdout)
		if line, err := r.ReadBytes('\n'); err == nil {
			first <- line
		}
		_, _ = io.Copy(io.Discard, r)
		p.err = p.cmd.Wait()
	}()
	return p, first, nil
}

// kill ends the daemon as a crash would. A daemon that has ended stays ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// terminate sends SIGTERM and returns how long the daemon took to end, and how.
func (p *process) terminate() (time.Duration, error) {
	begun := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-p.exited:
		return time.Since(begun), p.err
	case <-time.After(patience):
		return 0, errors.New("it did not end")
	}
}

// get returns the body of a page of the daemon's HTTP port.
func (p *process) get(path string) (string, error) {
	c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get("http://" + p.ready.HTTP + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, r.Status, b)
	}
	return string(b), err
}

// output is what a process wrote so far. It is safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// lines returns the lines that contain all of parts.
func (o *output) lines(parts ...string) (found []string) {
	for line := range strings.Lines(o.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}
