package state_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hedged-project/hedged/daemon/state"
	"github.com/hedged-project/hedged/policy"
	"github.com/hedged-project/hedged/storage"
	"github.com/hedged-project/hedged/storage/bolt"
)

func TestMain(m *testing.M) {
	if runCommander() { // this process is a child of a test
		return
	}
	goleak.VerifyTestMain(m)
}

var (
	start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	pay   = policy.Key{Tenant: "default", Service: "pay"}
	cart  = policy.Key{Tenant: "default", Service: "cart"}
	off   = state.Override{Mode: policy.ModeOff, HasMode: true, Author: "ann"}
	on    = state.Override{Mode: policy.ModeActive, HasMode: true, Author: "ann"}
)

func about(o state.Override, key policy.Key) state.Override {
	o.Key = key
	return o
}

// world is a state directory with a clock and a log, over restarts.
type world struct {
	t    *testing.T
	dir  string
	now  atomic.Int64
	log  bytes.Buffer
	disk *disk
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), disk: &disk{}}
	w.now.Store(start.UnixNano())
	return w
}

func (w *world) clock() time.Time { return time.Unix(0, w.now.Load()) }

func (w *world) step(d time.Duration) { w.now.Add(int64(d)) }

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) open() *state.State {
	w.t.Helper()
	s, err := state.OpenWith(w.dir, slog.New(slog.NewTextHandler(&w.log, nil)), w.clock, w.disk.open)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (w *world) close(s *state.State) {
	w.t.Helper()
	if err := s.Close(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(name, content string) {
	w.t.Helper()
	if err := os.WriteFile(w.path(name), []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// disk opens stores whose writes can be made to fail or to stall.
type disk struct {
	full  atomic.Bool
	stall atomic.Pointer[chan struct{}]
}

func (d *disk) open(path string) (storage.Store, error) {
	if d.full.Load() {
		if _, err := os.Stat(path); err != nil {
			return nil, syscall.ENOSPC
		}
	}
	s, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		return nil, err
	}
	return diskStore{s, d}, nil
}

type diskStore struct {
	storage.Store
	disk *disk
}

func (s diskStore) Put(ctx context.Context, key string, value []byte, prev storage.Revision) (storage.Revision, error) {
	if c := s.disk.stall.Load(); c != nil {
		<-*c
	}
	if s.disk.full.Load() {
		return 0, syscall.ENOSPC
	}
	return s.Store.Put(ctx, key, value, prev)
}

func (w *world) set(s *state.State, o state.Override) state.Override {
	w.t.Helper()
	got, durable, err := s.SetOverride(w.t.Context(), o, 0.05)
	if err != nil || !durable || got.Serial == 0 {
		w.t.Fatalf("SetOverride(%+v) = %+v, durable %v, %v", o, got, durable, err)
	}
	return got
}

func (w *world) wantMode(s *state.State, key policy.Key, want string) {
	w.t.Helper()
	got := "configured"
	if o, ok := s.Effective(key); ok && o.HasMode {
		got = o.Mode.String()
	}
	if got != want {
		w.t.Fatalf("%v is %s, want %s; commands: %+v", key, got, want, s.Overrides())
	}
}

// until waits for what the writer does in its own time.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(20 * time.Second); !done(); {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%s: did not happen", what)
		}
	}
}

func TestRestartKeepsEverything(t *testing.T) {
	w := newWorld(t)
	s := w.open()
	epoch := s.Epoch()
	if want := uint64(start.UnixMilli()); epoch != want {
		t.Fatalf("epoch is %d, want the Unix milliseconds %d", epoch, want)
	}
	var last policy.Generation
	for range 10 {
		g := s.Next()
		if g.Compare(last) <= 0 {
			t.Fatalf("%v follows %v", g, last)
		}
		last = g
	}
	s.SavePolicy(pay, []byte("old"))
	s.SavePolicy(pay, []byte("new"))
	s.SavePolicy(cart, []byte("cart"))
	w.set(s, about(off, pay))
	w.close(s)

	w.step(time.Hour)
	s = w.open()
	if g := s.Next(); g.Epoch != epoch || g.Number <= last.Number {
		t.Fatalf("after a restart: %v, want epoch %d and a number above %d", g, epoch, last.Number)
	}
	got := s.Policies()
	if len(got) != 2 || string(got[pay]) != "new" || string(got[cart]) != "cart" {
		t.Fatalf("policies are %q", got)
	}
	w.wantMode(s, pay, "off")
	if o := s.Overrides()[0]; o.Author != "ann" || !o.SetAt.Equal(start) || s.Doubtful() || s.Err() != nil {
		t.Fatalf("override is %+v, doubtful %v, %v", o, s.Doubtful(), s.Err())
	}
	w.close(s)
}

func TestSecondDaemonIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open()
	begin := time.Now()
	_, err := state.Open(w.dir, slog.New(slog.DiscardHandler), w.clock)
	if !errors.Is(err, bolt.ErrLocked) || !strings.Contains(err.Error(), w.path(state.StoreFile)) {
		t.Fatalf("Open: %v, want ErrLocked and the file", err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Fatalf("Open took %v, want at most 2s", took)
	}
}

// A damaged or empty store is set aside under a name that is logged; a new
// epoch begins, and the commands come from their second copy.
func TestDamagedStore(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "zeros": strings.Repeat("\x00", 32<<10), "text": strings.Repeat("damage", 9000),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.open()
			old := s.Next()
			s.SavePolicy(pay, []byte("p"))
			w.set(s, about(off, pay))
			w.close(s)
			w.write(state.StoreFile, content)

			w.step(time.Minute)
			s = w.open()
			if g := s.Next(); g.Epoch <= old.Epoch {
				t.Fatalf("after damage: %v, want a newer epoch than %v", g, old)
			}
			w.wantMode(s, pay, "off")
			w.wantMode(s, cart, "configured")
			if s.Doubtful() || len(s.Policies()) != 0 || s.Err() != nil {
				t.Fatalf("doubtful %v, policies %q, %v", s.Doubtful(), s.Policies(), s.Err())
			}
			aside, _ := filepath.Glob(w.path(state.StoreFile + ".damaged-*"))
			if len(aside) != 1 || !strings.Contains(w.log.String(), aside[0]) {
				t.Fatalf("set aside: %q; log: %s", aside, w.log.String())
			}
			w.close(s)
			w.wantMode(w.open(), pay, "off")
		})
	}
}

// With both copies gone nothing says what operators turned off: every service
// is in shadow until one speaks, over restarts too.
func TestBothCopiesDamaged(t *testing.T) {
	for name, second := range map[string]string{"damaged": "{}", "absent": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.open()
			w.set(s, about(off, pay))
			w.close(s)
			w.write(state.StoreFile, strings.Repeat("damage", 9000))
			w.write(state.OverridesFile, second)
			if second == "" {
				if err := os.Remove(w.path(state.OverridesFile)); err != nil {
					t.Fatal(err)
				}
			}
			s = w.open()
			w.wantMode(s, pay, "shadow")
			w.wantMode(s, cart, "shadow")
			if !s.Doubtful() {
				t.Fatal("not doubtful")
			}
			w.close(s)
			s = w.open()
			w.set(s, about(on, cart))
			w.wantMode(s, pay, "shadow")
			w.wantMode(s, cart, "active")
			w.set(s, state.Override{Cleared: true})
			w.wantMode(s, pay, "configured")
			w.close(s)
			if s = w.open(); s.Doubtful() {
				t.Fatal("doubtful again after an operator spoke")
			}
		})
	}
}

// Damage of the second copy alone costs nothing: it is written again.
func TestSecondCopyDamaged(t *testing.T) {
	w := newWorld(t)
	s := w.open()
	w.set(s, about(off, pay))
	w.close(s)
	whole, err := os.ReadFile(w.path(state.OverridesFile))
	if err != nil {
		t.Fatal(err)
	}
	w.write(state.OverridesFile, strings.Replace(string(whole), "off", "on", 1))
	s = w.open()
	w.wantMode(s, pay, "off")
	w.close(s)
	again, err := os.ReadFile(w.path(state.OverridesFile))
	if err != nil || !bytes.Equal(again, whole) {
		t.Fatalf("second copy is %q, want %q; %v", again, whole, err)
	}
}

// A copy that is older, such as one from a backup, brings nothing back that was
// cleared, whichever of the two it is.
func TestOlderCopyRevivesNothing(t *testing.T) {
	for _, name := range []string{state.StoreFile, state.OverridesFile} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.open()
			w.set(s, about(off, pay))
			w.close(s)
			old, err := os.ReadFile(w.path(name))
			if err != nil {
				t.Fatal(err)
			}
			s = w.open()
			w.set(s, state.Override{Key: pay, Cleared: true})
			w.set(s, about(off, cart))
			w.close(s)
			w.write(name, string(old))
			for range 2 {
				s = w.open()
				w.wantMode(s, pay, "configured")
				w.wantMode(s, cart, "off")
				w.close(s)
			}
		})
	}
}

// While the disk is full: policies and numbers go on from memory, a command
// that tightens holds, one that loosens is refused, and it shows. Then space is
// freed and all of it is saved.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.open()
	w.set(s, about(off, cart))
	w.disk.full.Store(true)

	s.SavePolicy(pay, []byte("1"))
	until(t, "the error shows", func() bool { return errors.Is(s.Err(), syscall.ENOSPC) && s.Stats().Failures > 0 })
	got, durable, err := s.SetOverride(t.Context(), about(off, pay), 0.05)
	if durable || got.Serial == 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("tightening: %+v, durable %v, %v; want applied with ENOSPC", got, durable, err)
	}
	w.wantMode(s, pay, "off")
	got, _, err = s.SetOverride(t.Context(), about(on, cart), 0.05)
	if got.Serial != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("loosening: %+v, %v; want refused with ENOSPC", got, err)
	}
	w.wantMode(s, cart, "off")
	s.SavePolicy(pay, []byte("2"))
	last := s.Next()
	for range 3 * state.Block {
		g := s.Next()
		if g.Compare(last) <= 0 {
			t.Fatalf("%v follows %v", g, last)
		}
		last = g
	}

	w.disk.full.Store(false)
	until(t, "saving resumes", func() bool { return s.Err() == nil })
	w.close(s)
	s = w.open()
	w.wantMode(s, pay, "off")
	w.wantMode(s, cart, "off")
	if got := s.Policies(); string(got[pay]) != "2" {
		t.Fatalf("policies are %q", got)
	}
	if g := s.Next(); g.Compare(last) <= 0 {
		t.Fatalf("after the restart %v, there was %v before", g, last)
	}
}

// The disk is full when the daemon starts, with and without a file.
func TestFullDiskAtStart(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{true, false} {
		w := newWorld(t)
		var before policy.Generation
		if !fresh {
			s := w.open()
			before = s.Next()
			w.set(s, about(off, pay))
			w.close(s)
		}
		w.disk.full.Store(true)
		w.step(time.Second)
		s := w.open()
		if s.Err() == nil {
			t.Fatal("no error shows")
		}
		if g := s.Next(); g.Compare(before) <= 0 {
			t.Fatalf("%v follows %v", g, before)
		}
		if !fresh {
			w.wantMode(s, pay, "off")
		}
		w.disk.full.Store(false)
		until(t, "saving resumes", func() bool { return s.Err() == nil })
		w.close(s)
	}
}

// A disk that does not answer holds up nobody but the one who asked for a save,
// and that one for a bounded time.
func TestStallingDisk(t *testing.T) {
	w := newWorld(t)
	s := w.open()
	let := make(chan struct{})
	w.disk.stall.Store(&let)
	s.SavePolicy(pay, []byte("1"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got, durable, err := s.SetOverride(ctx, about(off, pay), 0.05); durable || got.Serial == 0 || err == nil {
		t.Fatalf("tightening: %+v, durable %v, %v; want applied, not durable", got, durable, err)
	}
	if got, _, err := s.SetOverride(ctx, about(on, cart), 0.05); got.Serial != 0 || err == nil {
		t.Fatalf("loosening: %+v, %v; want refused", got, err)
	}
	for range 2 * state.Block {
		s.Next()
	}
	w.wantMode(s, pay, "off")
	w.wantMode(s, cart, "configured")
	close(let)
	w.close(s)
	s = w.open()
	w.wantMode(s, pay, "off")
	w.wantMode(s, cart, "configured")
}

// After Close nothing is saved, and it says so.
func TestClosed(t *testing.T) {
	w := newWorld(t)
	s := w.open()
	w.close(s)
	if _, durable, err := s.SetOverride(t.Context(), off, 0.05); durable || !errors.Is(err, storage.ErrClosed) {
		t.Fatalf("SetOverride: durable %v, %v", durable, err)
	}
	w.close(s)
}
