package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/client/local"
)

// A connection to a service whose law runs in this process, with no daemon.
func ExampleClient_DialOptions() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(listener)
	defer server.Stop()

	hedging, err := client.New(client.Options{
		Controller: local.New(local.Options{}),
		Hedgeable:  []string{healthv1.Health_Check_FullMethodName}, // its proto does not say so
	})
	if err != nil {
		panic(err)
	}
	defer hedging.Close()
	conn, err := grpc.NewClient(listener.Addr().String(),
		hedging.DialOptions("health", grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	answer, err := healthv1.NewHealthClient(conn).Check(context.Background(), &healthv1.HealthCheckRequest{})
	if err != nil {
		panic(err)
	}
	for _, s := range hedging.Stats() {
		fmt.Printf("%v: %v, %d call, %d may run twice\n", s.Key, answer.Status, s.Calls, s.Safe)
	}
	// Output:
	// default/health: SERVING, 1 call, 1 may run twice
}

// Requests of one service, named by route. A server in this process counts them, and
// every attempt is logged.
func ExampleClient_Transport_observed() {
	hedging, err := client.New(client.Options{
		Controller: local.New(local.Options{}),
		OnAttempt: func(_ context.Context, a client.Attempt) {
			fmt.Printf("attempt %d of %s won: %v\n", a.Index, a.Method, a.Won)
		},
	})
	if err != nil {
		panic(err)
	}
	defer hedging.Close()
	server := httptest.NewServer(hedging.HTTPHandler("orders", "replica-1", http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "order ", r.URL.Path[len("/orders/"):]) })))
	defer server.Close()

	base := &http.Transport{}
	defer base.CloseIdleConnections()
	orders := &http.Client{Transport: hedging.Transport("orders", base, client.HTTPOptions{
		Method: func(r *http.Request) string { return r.Method + " /orders/{id}" },
	})}
	response, err := orders.Get(server.URL + "/orders/7")
	if err != nil {
		panic(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		panic(err)
	}
	response.Body.Close()
	fmt.Printf("%s\n", body)
	for _, s := range hedging.ServerStats() {
		fmt.Printf("%s saw %d attempt, %d hedges\n", s.Replica, s.Attempts, s.Hedges)
	}
	// Output:
	// attempt 0 of GET /orders/{id} won: true
	// order 7
	// replica-1 saw 1 attempt, 0 hedges
}

// A page for people, beside net/http/pprof.
func ExampleClient_DebugHandler() {
	hedging, err := client.New(client.Options{Controller: local.New(local.Options{}), ID: "shop-1"})
	if err != nil {
		panic(err)
	}
	defer hedging.Close()
	debug := http.NewServeMux()
	debug.Handle("GET /debug/hedged", hedging.DebugHandler())

	w := httptest.NewRecorder()
	debug.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/hedged", nil))
	fmt.Print(w.Body)
	// Output:
	// client shop-1, reports refused 0
}
