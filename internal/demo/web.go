package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/hedged-project/hedged/client"
)

// web is the replicas of a scene over HTTP, each at an address that is its name, and
// the client library's transport in front of them.
type web struct {
	addresses []string
	servers   []*http.Server
	base      *http.Transport
	hedging   *client.Client
	moves     *moves
	http      *http.Client
}

// startWeb serves handle(i) on one replica for each of the fleet's.
func (s stage) startWeb(o client.HTTPOptions, handle func(i int) http.Handler) (*web, error) {
	w := &web{base: &http.Transport{MaxIdleConnsPerHost: 100}, moves: newMoves()}
	for i := range s.fleet.replicas {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			w.close()
			return nil, fmt.Errorf("replica: %w", err)
		}
		name := l.Addr().String()
		server := &http.Server{
			Handler:           s.fleet.counter.HTTPHandler(s.service, name, handle(i)),
			ReadHeaderTimeout: callTimeout,
		}
		go func() { _ = server.Serve(l) }() // ends by Close; a failure shows as failed calls
		w.addresses, w.servers = append(w.addresses, name), append(w.servers, server)
	}
	var err error
	w.hedging, err = client.New(client.Options{Daemon: s.d.ready.GRPC, ID: s.service, OnPolicy: w.moves.note})
	if err != nil {
		w.close()
		return nil, err
	}
	o.Replicas = func() []string { return w.addresses }
	w.http = &http.Client{Transport: w.hedging.Transport(s.service, w.base, o), Timeout: callTimeout}
	return w, nil
}

func (w *web) close() {
	w.base.CloseIdleConnections()
	for _, server := range w.servers {
		_ = server.Close() // its callers have gone
	}
	if w.hedging != nil {
		w.hedging.Close()
	}
}

// do makes one request and reads its answer.
func (w *web) do(ctx context.Context, via *http.Client, method, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://users"+path, nil)
	if err != nil {
		return "", err
	}
	response, err := via.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// warmUp makes requests until a method has a delay, for up to 10 s.
func (w *web) warmUp(ctx context.Context, method string, call func(context.Context, int64) error) error {
	l := begin(ctx, load{call: call, inFlight: 40})
	defer l.end()
	end := time.Now().Add(10 * time.Second)
	for {
		st := w.hedging.Stats()[0]
		if st.Delay[method] > 0 && st.Hedges > 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("after 10 s %s has a delay of %v and %d hedges", method, st.Delay[method], st.Hedges)
		}
		if err := sleep(ctx, 20*time.Millisecond, func(float64) {}); err != nil {
			return err
		}
	}
}
