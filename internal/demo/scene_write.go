package demo

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/idempotency"
)

// writes is the article's two users: saves whose replica stores the user, and then
// stalls before it answers. An application that calls them safe to repeat gets each
// user twice. With a key on the call, and servers that guard their saves on one
// store, it gets each once, and the copy's answer is the first one's.
func writes(ctx context.Context, s stage) ([]Figure, error) {
	const saves = 10
	table := &users{}
	guard, err := idempotency.New(idempotency.NewMemory(100_000), idempotency.Options{})
	if err != nil {
		return nil, err
	}
	guarded := guard.Handler(http.HandlerFunc(table.save))
	w, err := s.startWeb(client.HTTPOptions{
		Hedgeable: func(*http.Request) bool { return true }, // which is wrong, without a key
	}, func(int) http.Handler { return guarded })
	if err != nil {
		return nil, err
	}
	defer w.close()
	save := func(via *http.Client, name string) (string, error) {
		return w.do(ctx, via, http.MethodPost, "/users?name="+url.QueryEscape(name))
	}
	quick := func(_ context.Context, n int64) error {
		_, err := save(w.http, fmt.Sprint("quick-", n))
		return err
	}
	if err := w.warmUp(ctx, http.MethodPost, quick); err != nil {
		return nil, err
	}
	keyed := &http.Client{
		Transport: idempotency.NewTransport(w.http.Transport, func(*http.Request) bool { return true }),
		Timeout:   callTimeout,
	}
	figures := []Figure{{"saves", saves}}
	for _, how := range []struct {
		name string
		via  *http.Client
	}{{"without_key", w.http}, {"with_key", keyed}} {
		begun := time.Now()
		hedges := w.hedging.Stats()[0].Hedges
		answers := 0
		for i := range saves {
			// The budget is earned by calls, as in life.
			load{call: quick, inFlight: 40, calls: 100}.run(ctx)
			got, err := save(how.via, fmt.Sprintf("%s%s-%d", stalls, how.name, i))
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(got, stalls) {
				answers++
			}
			s.progress(.1 + .9*float64(i)/saves)
		}
		figures = append(figures,
			Figure{"users_" + how.name, float64(table.count(stalls + how.name))},
			Figure{"answers_" + how.name, float64(answers)},
			Figure{"hedges_" + how.name, float64(w.hedging.Stats()[0].Hedges - hedges)},
			Figure{"took_" + how.name + "_s", time.Since(begun).Seconds()},
		)
	}
	return figures, nil
}

// stalls begins the name of a user whose first save stalls after it is stored.
const stalls = "stall-"

// users is the table that all replicas store in.
type users struct {
	mu    sync.Mutex
	names []string
}

func (u *users) save(w http.ResponseWriter, r *http.Request) {
	name := r.FormValue("name")
	u.mu.Lock()
	first := !slices.Contains(u.names, name)
	u.names = append(u.names, name)
	u.mu.Unlock()
	took := fastest
	if first && strings.HasPrefix(name, stalls) {
		took = stall
	}
	// The user is stored, whoever waits for the answer.
	_ = sleep(context.WithoutCancel(r.Context()), took, func(float64) {})
	_, _ = w.Write([]byte(name))
}

func (u *users) count(prefix string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range u.names {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}
