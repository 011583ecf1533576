package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// process is a child: this program in another role. It is asked and answers by lines.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self, args...)}
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

// stop kills the child: what it held goes with it.
func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // says that it was killed
}

func (p *process) say(v any) error {
	if text, ok := v.(string); ok {
		_, err := fmt.Fprintln(p.in, text)
		return err
	}
	return json.NewEncoder(p.in).Encode(v)
}

// hear reads the next answer into v, within a minute.
func (p *process) hear(v any) error {
	timer := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%v: %w", p.cmd.Args[1:], err)
	}
	return json.Unmarshal(line, v)
}

func (p *process) ask(question, answer any) error {
	if err := p.say(question); err != nil {
		return err
	}
	return p.hear(answer)
}
