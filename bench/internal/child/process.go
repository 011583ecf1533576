// Package child runs this program in another role, in a process of its own, and
// talks to it by lines of JSON.
package child

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a child. It is asked and answers by lines.
type Process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts this program with other arguments.
func Start(args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(self, args...)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

// Stop kills the child: what it held goes with it.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // says that it was killed
}

// Hear reads the next answer into v, within a minute.
func (p *Process) Hear(v any) error {
	timer := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%v: %w", p.cmd.Args[1:], err)
	}
	return json.Unmarshal(line, v)
}

// Ask sends a question and hears its answer.
func (p *Process) Ask(question, answer any) error {
	if err := json.NewEncoder(p.in).Encode(question); err != nil {
		return err
	}
	return p.Hear(answer)
}

// Say answers, in the child, with one line.
func Say(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(b))
}

// Number reads an argument.
func Number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		log.Fatal(err)
	}
	return n
}

// CPU is what this process has spent.
func CPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		log.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// Memory is what this process holds, in bytes.
type Memory struct {
	InUse   int64 // by heap and stacks, after a collection; see package xds
	RSS     int64 // resident now
	PeakRSS int64
}

// Resident reads RSS and PeakRSS.
func Resident() (m Memory) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmRSS:":
			m.RSS = int64(Number(fields[1])) << 10
		case "VmHWM:":
			m.PeakRSS = int64(Number(fields[1])) << 10
		}
	}
	return m
}
