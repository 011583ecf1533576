package storetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hedged-project/hedged/idempotency"
)

// copies is how many come at once.
const copies = 50

// barrier is a handler that the first run holds until it is opened. A second run
// opens it: then the test has failed and must not hang.
type barrier struct {
	runs atomic.Int64
	open chan struct{}
	once sync.Once
}

func (b *barrier) handle(context.Context, string, string) (outcome, answer string) {
	if b.runs.Add(1) > 1 {
		b.lift()
	}
	<-b.open
	return "ok", "saved"
}

func (b *barrier) lift() { b.once.Do(func() { close(b.open) }) }

// parallel sends the copies at once and counts their outcomes; each is told of.
func parallel(do send, told func(answer)) map[answer]int {
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		got = make(map[answer]int)
	)
	for range copies {
		wg.Go(func() {
			a := do(request{resource: "A", user: "ann", key: "k", body: "b"})
			told(a)
			mu.Lock()
			defer mu.Unlock()
			if a.outcome != "ok" {
				a.body = ""
			}
			got[a]++
		})
	}
	wg.Wait()
	return got
}

// A second request with the key that arrives before the first ends must not be
// carried out too.
func parallelRefused(t *testing.T, p protocol, s idempotency.Store) {
	b := &barrier{open: make(chan struct{})}
	do := p.serve(t, newGuard(t, s, idempotency.Options{Wait: -1}), b.handle)
	var refused atomic.Int64
	got := parallel(do, func(a answer) {
		if a.outcome == "in progress" && refused.Add(1) == copies-1 {
			b.lift()
		}
	})
	if n := b.runs.Load(); n != 1 {
		t.Errorf("the handler ran %d times, want once", n)
	}
	if got[answer{outcome: "ok", body: "saved"}] != 1 || got[answer{outcome: "in progress"}] != copies-1 {
		t.Errorf("the copies got %v, want 1 ok and %d in progress", got, copies-1)
	}
}

// countingStore tells how often a call was found running.
type countingStore struct {
	idempotency.Store
	running func()
}

func (c countingStore) Begin(ctx context.Context, call idempotency.Call) (idempotency.Begun, error) {
	begun, err := c.Store.Begin(ctx, call)
	if begun.State == idempotency.Running {
		c.running()
	}
	return begun, err
}

func parallelWaiting(t *testing.T, p protocol, s idempotency.Store) {
	b := &barrier{open: make(chan struct{})}
	var found atomic.Int64
	s = countingStore{s, func() {
		if found.Add(1) == copies-1 {
			b.lift()
		}
	}}
	do := p.serve(t, newGuard(t, s, idempotency.Options{Wait: time.Minute}), b.handle)
	got := parallel(do, func(answer) {})
	if n := b.runs.Load(); n != 1 {
		t.Errorf("the handler ran %d times, want once", n)
	}
	if got[answer{outcome: "ok", body: "saved"}] != 1 || got[answer{outcome: "ok", body: "saved", replayed: true}] != copies-1 {
		t.Errorf("the copies got %v, want 1 ok and %d repetitions of it", got, copies-1)
	}
}

func wantOutcome(t *testing.T, got answer, want answer) {
	t.Helper()
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Reuse of a key on another resource, with the same empty body, must not replay
// the first one's success.
func otherResource(t *testing.T, p protocol, s idempotency.Store) {
	c := new(counter)
	do := p.serve(t, newGuard(t, s, idempotency.Options{}), c.handle)
	wantOutcome(t, do(request{resource: "A", user: "ann", key: "k"}), answer{outcome: "ok", body: resourceOf(p, "A") + "  run 1"})
	if got := do(request{resource: "B", user: "ann", key: "k"}); got.outcome != "mismatch" {
		t.Errorf("the key on B got %+v, want a mismatch", got)
	}
	if n := c.runs.Load(); n != 1 {
		t.Errorf("%d runs, want that B is untouched", n)
	}
	wantOutcome(t, do(request{resource: "A", user: "ann", key: "k"}),
		answer{outcome: "ok", body: resourceOf(p, "A") + "  run 1", replayed: true})
}

// resourceOf is how a handler of the protocol sees a resource.
func resourceOf(p protocol, resource string) string {
	if p.name == "HTTP" {
		return "/" + resource
	}
	return resource
}

func otherBody(t *testing.T, p protocol, s idempotency.Store) {
	c := new(counter)
	do := p.serve(t, newGuard(t, s, idempotency.Options{}), c.handle)
	do(request{resource: "A", user: "ann", key: "k", body: "one"})
	if got := do(request{resource: "A", user: "ann", key: "k", body: "two"}); got.outcome != "mismatch" || c.runs.Load() != 1 {
		t.Errorf("other data got %+v in %d runs, want a mismatch and 1", got, c.runs.Load())
	}
}

// A second user who sends the same key must not get the first user's answer.
func callers(t *testing.T, p protocol, s idempotency.Store) {
	c := new(counter)
	do := p.serve(t, newGuard(t, s, idempotency.Options{}), c.handle)
	for repeat := range 3 {
		for n, user := range []string{"ann", "bob"} {
			wantOutcome(t, do(request{resource: "A", user: user, key: "k", body: "b"}), answer{
				outcome:  "ok",
				body:     fmt.Sprintf("%s b run %d", resourceOf(p, "A"), n+1),
				replayed: repeat > 0,
			})
		}
	}
	if n := c.runs.Load(); n != 2 {
		t.Errorf("%d runs, want one for each caller", n)
	}
}

// An answer above the size limit must not make a retry repeat the effect.
func tooLarge(t *testing.T, p protocol, s idempotency.Store) {
	c := &counter{size: 2 << 10}
	do := p.serve(t, newGuard(t, s, idempotency.Options{MaxAnswer: 1 << 10}), c.handle)
	wantOutcome(t, do(request{resource: "A", user: "ann", key: "k"}), answer{outcome: "ok", body: strings.Repeat("x", 2<<10)})
	for range 2 {
		got := do(request{resource: "A", user: "ann", key: "k"})
		if got.outcome != "not kept" || !strings.Contains(got.body, "its answer was not kept") {
			t.Errorf("the retry got %+v, want to be told that the answer was not kept", got)
		}
	}
	if got := do(request{resource: "A", user: "ann", key: "k", body: "other"}); got.outcome != "mismatch" {
		t.Errorf("other data got %+v, want a mismatch", got)
	}
	if n := c.runs.Load(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// again sends a call whose first run fails, clears the cause, and sends it again.
func again(t *testing.T, p protocol, s idempotency.Store, r idempotency.Refusals, failure string) (first, second answer, runs int64) {
	t.Helper()
	c := new(counter)
	c.outcome.Store(failure)
	do := p.serve(t, newGuard(t, s, idempotency.Options{Refusals: r}), c.handle)
	first = do(request{resource: "A", user: "ann", key: "k"})
	c.outcome.Store("ok")
	second = do(request{resource: "A", user: "ann", key: "k"})
	return first, second, c.runs.Load()
}

// A final refusal must not be decided afresh on a retry.
func finalKept(t *testing.T, p protocol, s idempotency.Store) {
	first, second, runs := again(t, p, s, idempotency.KeepFinal, "conflict")
	wantOutcome(t, first, answer{outcome: "conflict", body: resourceOf(p, "A") + "  run 1"})
	wantOutcome(t, second, answer{outcome: "conflict", body: resourceOf(p, "A") + "  run 1", replayed: true})
	if runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}

func finalReleased(t *testing.T, p protocol, s idempotency.Store) {
	_, second, _ := again(t, p, s, idempotency.ReleaseAll, "conflict")
	wantOutcome(t, second, answer{outcome: "ok", body: resourceOf(p, "A") + "  run 2"})
}

func temporaryReleased(t *testing.T, p protocol, s idempotency.Store) {
	_, second, _ := again(t, p, s, idempotency.KeepFinal, "unavailable")
	wantOutcome(t, second, answer{outcome: "ok", body: resourceOf(p, "A") + "  run 2"})
}

// A repetition must not split header values at commas, and has the same lines,
// bytes and order; what is withheld is dropped whole.
func headerLines(t *testing.T, s idempotency.Store) {
	g := newGuard(t, s, idempotency.Options{Withhold: []string{"x-Secret"}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Origin") // of one outside the guard
		ctx := context.WithValue(r.Context(), userContext{}, "ann")
		g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Add("Link", `</a>; rel="next, last"`)
			h.Add("Link", `</b>; rel="prev"`)
			h.Set("Content-Disposition", `attachment; filename="a, b.csv"`)
			h["x-MIXED-case"] = []string{"one,two", "three"}
			h.Add("Vary", "Accept")
			h.Add("Set-Cookie", "a=1, x")
			h.Add("Set-Cookie", "b=2")
			h["X-SECRET"] = []string{"s"}
			h.Set("Trailer", "X-Sum")
			w.WriteHeader(http.StatusCreated)
			w.Write([]byte("body\x00\r\n"))
			h.Set("X-Sum", "1, 2")
		})).ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(server.Close)
	first, second := rawLines(t, server), rawLines(t, server)
	for _, line := range []string{
		`Link: </a>; rel="next, last"`, `Link: </b>; rel="prev"`, `Content-Disposition: attachment; filename="a, b.csv"`,
		"x-MIXED-case: one,two", "x-MIXED-case: three", "Vary: Origin", "Vary: Accept", "X-Sum: 1, 2",
	} {
		if !slices.Contains(first, line) {
			t.Errorf("the first answer has no line %q:\n%q", line, first)
		}
	}
	withheld := func(line string) bool {
		return strings.HasPrefix(line, "Set-Cookie:") || strings.HasPrefix(line, "X-SECRET:")
	}
	if n := len(slices.DeleteFunc(slices.Clone(first), func(line string) bool { return !withheld(line) })); n != 3 {
		t.Errorf("the first answer has %d withheld lines, want 3:\n%q", n, first)
	}
	want := slices.DeleteFunc(slices.Clone(first), withheld)
	marked := len(second)
	second = slices.DeleteFunc(second, func(line string) bool { return line == idempotency.Replayed+": true" })
	if len(second) != marked-1 {
		t.Errorf("the repetition has no line %q", idempotency.Replayed+": true")
	}
	if !slices.Equal(second, want) {
		t.Errorf("the repetition is\n%q, want\n%q", second, want)
	}
}

// rawLines sends a request and returns the lines of the response as they came,
// without the date.
func rawLines(t *testing.T, server *httptest.Server) (lines []string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if line != "" && !strings.HasPrefix(line, "Date:") {
			lines = append(lines, strings.TrimSuffix(line, "\r\n"))
		}
		if err == io.EOF {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func metadataValues(t *testing.T, s idempotency.Store) {
	g := newGuard(t, s, idempotency.Options{Withhold: []string{"X-Secret"}})
	header := metadata.Pairs("link", "a, b", "link", "c", "raw-bin", "\x00,\xff", "authorization", "Bearer 1", "x-secret", "s")
	trailer := metadata.Pairs("cost", "1, 2", "cost", "3", "set-cookie", "a")
	cc := DialGRPC(t, g, func(ctx context.Context, _ string, _ *text) (*text, error) {
		if err := grpc.SetHeader(ctx, header); err != nil {
			t.Error(err)
		}
		if err := grpc.SendHeader(ctx, metadata.Pairs("link", "d")); err != nil {
			t.Error(err)
		}
		if err := grpc.SetTrailer(ctx, trailer); err != nil {
			t.Error(err)
		}
		return wrapperspb.String("saved"), nil
	})
	for copyNumber, withheld := range []bool{false, true} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "user", "ann", idempotency.MetadataKey, "k")
		var (
			reply      text
			gotHeader  metadata.MD
			gotTrailer metadata.MD
		)
		if err := cc.Invoke(ctx, "/storetest.Orders/A", wrapperspb.String("b"), &reply, grpc.Header(&gotHeader), grpc.Trailer(&gotTrailer)); err != nil {
			t.Fatal(err)
		}
		check := func(got metadata.MD, name string, want ...string) {
			t.Helper()
			if !slices.Equal(got.Get(name), want) {
				t.Errorf("copy %d has %s: %q, want %q", copyNumber+1, name, got.Get(name), want)
			}
		}
		check(gotHeader, "link", "a, b", "c", "d")
		check(gotHeader, "raw-bin", "\x00,\xff")
		check(gotTrailer, "cost", "1, 2", "3")
		if withheld {
			check(gotHeader, "authorization")
			check(gotHeader, "x-secret")
			check(gotTrailer, "set-cookie")
			check(gotHeader, idempotency.Replayed, "true")
		} else {
			check(gotHeader, "authorization", "Bearer 1")
			check(gotHeader, idempotency.Replayed)
		}
	}
}
