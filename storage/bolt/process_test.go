package bolt_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hedged-project/hedged/storage"
	"github.com/hedged-project/hedged/storage/bolt"
)

// runWriter is the child process of the tests below: it opens the store, prints
// "open", and then counts up in one key and spreads over others for ever, and
// prints each number once its write was acknowledged.
func runWriter() bool {
	path := os.Getenv("HEDGED_TEST_WRITER")
	if path == "" {
		return false
	}
	s, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	ctx, n := context.Background(), 0
	rec, err := s.Get(ctx, "n")
	if err == nil {
		n, err = strconv.Atoi(string(rec.Value))
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		panic(err)
	}
	for rev := rec.Revision; ; {
		n++
		pad, err := s.Get(ctx, fmt.Sprint("pad/", n%50))
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			panic(err)
		}
		if _, err := s.Put(ctx, fmt.Sprint("pad/", n%50), make([]byte, n%9000), pad.Revision); err != nil {
			panic(err)
		}
		if rev, err = s.Put(ctx, "n", []byte(strconv.Itoa(n)), rev); err != nil {
			panic(err)
		}
		fmt.Println(n)
	}
}

type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startWriter(t *testing.T, path string) child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HEDGED_TEST_WRITER="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := child{cmd, bufio.NewScanner(out)}
	if !c.out.Scan() || c.out.Text() != "open" {
		c.kill()
		t.Fatalf("the child says %q, want open", c.out.Text())
	}
	return c
}

// kill ends the child as kill -9 does and returns the last number that it
// acknowledged.
func (c child) kill() int {
	_ = c.cmd.Process.Kill()
	last := 0
	for c.out.Scan() {
		// The last line may be cut.
		if n, err := strconv.Atoi(c.out.Text()); err == nil && n > last {
			last = n
		}
	}
	_ = c.cmd.Wait()
	return last
}

// A writer is killed hard 20 times in the middle of its writes: each time the
// file opens and has every write that was acknowledged.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	acknowledged := 0
	for round := range 20 {
		c := startWriter(t, path)
		for range 3 + round {
			if !c.out.Scan() {
				t.Fatal("the child ended")
			}
			if n, err := strconv.Atoi(c.out.Text()); err == nil {
				acknowledged = n
			}
		}
		acknowledged = max(acknowledged, c.kill())
		s, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		rec, err := s.Get(t.Context(), "n")
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		n, err := strconv.Atoi(string(rec.Value))
		// One more may be on disk than was printed.
		if err != nil || n < acknowledged || n > acknowledged+1 {
			t.Fatalf("round %d: %q is stored, %d was acknowledged; %v", round, rec.Value, acknowledged, err)
		}
		acknowledged = n
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d writes were acknowledged and kept", acknowledged)
}

// A second process on the same file gets an error that names it, in time.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	c := startWriter(t, path)
	defer c.kill()
	begin := time.Now()
	_, err := bolt.Open(path, bolt.Options{})
	if !errors.Is(err, bolt.ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Fatalf("Open: %v, want ErrLocked and the path", err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Fatalf("Open took %v, want at most 2s", took)
	}
	if err := bolt.SetAside(path, path+".aside", bolt.Options{LockTimeout: time.Millisecond}); !errors.Is(err, bolt.ErrLocked) {
		t.Fatalf("SetAside: %v, want ErrLocked", err)
	}
}

// The lock is waited for: a restart overlaps the end of the process before it.
func TestLockComesFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	first := open(t, path)
	opened := make(chan error)
	go func() {
		s, err := bolt.Open(path, bolt.Options{LockTimeout: 20 * time.Second})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
}

// On a file system where opening or locking stalls for good, Open still ends.
func TestStallingFileSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	// The store is there already: whether what was left behind makes an empty file
	// first, which is no store, is chance.
	s, err := bolt.Open(path, bolt.Options{})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	let := make(chan struct{})
	var opened sync.WaitGroup
	restore := bolt.SetOpenFile(func(name string, flag int, mode os.FileMode) (*os.File, error) {
		<-let
		defer opened.Done()
		return os.OpenFile(name, flag, mode)
	})
	opened.Add(1)
	begin := time.Now()
	_, err = bolt.Open(path, bolt.Options{LockTimeout: 50 * time.Millisecond})
	if !errors.Is(err, bolt.ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Fatalf("Open: %v, want ErrLocked and the path", err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Fatalf("Open took %v, want about 50ms", took)
	}
	// What was left behind gives the lock back when the file system answers.
	close(let)
	opened.Wait()
	opened.Add(1)
	s, err = bolt.Open(path, bolt.Options{LockTimeout: 20 * time.Second})
	restore()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
