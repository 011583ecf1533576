package idempotency_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hedged-project/hedged/idempotency"
)

// An HTTP server and client: a save that is sent twice under one key runs once,
// and other data under that key is refused.
func Example_http() {
	guard, err := idempotency.New(idempotency.NewMemory(10_000), idempotency.Options{})
	if err != nil {
		panic(err)
	}
	users := 0
	server := httptest.NewServer(guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		users++
		fmt.Fprintf(w, "user %d", users)
	})))
	defer server.Close()

	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: idempotency.NewTransport(transport, nil)}

	ctx := idempotency.WithKey(context.Background(), "order-4711")
	for _, name := range []string{"ann", "ann", "bob"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(name))
		if err != nil {
			panic(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			body = []byte(resp.Status)
		}
		fmt.Printf("%s: %s\n", name, body)
	}
	// Output:
	// ann: user 1
	// ann: user 1
	// bob: 422 Unprocessable Entity
}

// On the client the interceptor comes first, in front of what sends a call
// again; on the server behind what authenticates.
func Example_grpc() {
	guarded := func(method string) bool { return method == "/shop.Orders/Save" }
	conn, err := grpc.NewClient("dns:///orders:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(idempotency.UnaryClientInterceptor(guarded)))
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	guard, err := idempotency.New(idempotency.NewMemory(10_000), idempotency.Options{
		Caller: idempotency.PeerIdentity, // needs client certificates
	})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(guard.UnaryServerInterceptor()),
		grpc.ChainStreamInterceptor(guard.StreamServerInterceptor()))
	defer server.Stop()
}

func ExampleWithKey() {
	ctx := idempotency.WithKey(context.Background(), "order-4711")
	key, ok := idempotency.KeyFromContext(ctx)
	fmt.Println(key, ok)
	// Output: order-4711 true
}
