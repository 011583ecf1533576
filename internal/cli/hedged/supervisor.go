package hedged

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// supervisor is systemd, where it waits for word of the daemon: sd_notify(3), one
// datagram a message. Where nobody waits, telling does nothing. It is safe for
// concurrent use.
type supervisor struct {
	conn   net.Conn      // nil: nobody waits
	every  time.Duration // between signs of life; 0: nobody looks out for them
	logger *slog.Logger
}

// maxTelling bounds how long a supervisor that does not read holds the daemon up.
const maxTelling = time.Second

// supervised finds the supervisor by what it left in the environment. One that
// cannot be reached is as none: the variable may be of a parent process's.
func supervised(getenv func(string) string, pid int, logger *slog.Logger) *supervisor {
	s := &supervisor{logger: logger}
	path := getenv("NOTIFY_SOCKET")
	if path == "" {
		return s
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		logger.Warn("no word to the supervisor", "socket", path, "error", err)
		return s
	}
	s.conn = conn
	if of := getenv("WATCHDOG_PID"); of != "" && of != strconv.Itoa(pid) {
		return s // another process's watchdog
	}
	if us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
		// sd_watchdog_enabled(3): "every half of the time returned here".
		s.every = time.Duration(us) * time.Microsecond / 2
	}
	return s
}

// tell sends assignments, such as READY=1.
func (s *supervisor) tell(assignments ...string) {
	if s.conn == nil {
		return
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(maxTelling)) // else the write says so
	if _, err := s.conn.Write([]byte(strings.Join(assignments, "\n"))); err != nil {
		s.logger.Warn("no word to the supervisor", "told", assignments[0], "error", err)
	}
}

// reloading says that settings are read again; ready ends it.
func (s *supervisor) reloading() {
	s.tell("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", monotonic().Microseconds()))
}

// ready says that the daemon serves, and how it does in a line.
func (s *supervisor) ready(status string) {
	s.tell("READY=1", "STATUS="+strings.ReplaceAll(status, "\n", "; "))
}

// attend gives signs of life for as long as alive finds some, and says that the
// daemon stops when ctx ends.
func (s *supervisor) attend(ctx context.Context, alive func(context.Context) error) {
	var tick <-chan time.Time
	if s.every > 0 {
		t := time.NewTicker(s.every)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-ctx.Done():
			s.tell("STOPPING=1")
			return
		case <-tick:
		}
		probing, cancel := context.WithTimeout(ctx, s.every)
		err := alive(probing)
		cancel()
		switch {
		case err == nil:
			s.tell("WATCHDOG=1")
		case ctx.Err() == nil:
			s.logger.Error("no sign of life to the supervisor", "error", err)
		}
	}
}

func (s *supervisor) close() {
	if s.conn != nil {
		_ = s.conn.Close() // nothing is buffered
	}
}

// answers reports whether the HTTP port at addr answers at all. That it may be
// degraded is no reason to be killed: a restart would not mend a disk.
func answers(ctx context.Context, addr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/healthz", nil)
	if err != nil {
		return err
	}
	req.Close = true // half a watchdog from now is no reason to stay connected
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
