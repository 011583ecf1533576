package client_test

import (
	"log"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hedged-project/hedged/client"
)

// A process that calls a service: one Client, and its options on every
// connection to it.
func Example() {
	hedging, err := client.New(client.Options{
		Daemon:    "127.0.0.1:7946",
		Hedgeable: []string{"/shop.Orders/Get"},
	})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("dns:///orders:50051",
		hedging.DialOptions("orders", grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}

	// Calls on conn are measured, and hedged by the daemon's policies.

	_ = conn.Close()
	if err := hedging.Close(); err != nil {
		log.Print(err)
	}
}

// A replica of that service counts the attempts that reach it.
func ExampleClient_ServerOption() {
	hedging, err := client.New(client.Options{Daemon: "127.0.0.1:7946"})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(hedging.ServerOption("orders", "10.0.0.7:50051"))

	// Register services, Serve, and when that returns:

	server.Stop()
	if err := hedging.Close(); err != nil {
		log.Print(err)
	}
}

// A process that calls an HTTP service: one Client, and its transport in front of
// the http.Client that it has. Without replicas to choose from, hedges go through
// the service's balancer.
func ExampleClient_Transport() {
	hedging, err := client.New(client.Options{Daemon: "127.0.0.1:7946"})
	if err != nil {
		log.Fatal(err)
	}
	orders := &http.Client{Transport: hedging.Transport("orders", http.DefaultTransport, client.HTTPOptions{
		Method: func(r *http.Request) string {
			if strings.HasPrefix(r.URL.Path, "/orders/") {
				return r.Method + " /orders/{id}"
			}
			return r.Method
		},
		Replicas: func() []string { return []string{"10.0.0.7:8080", "10.0.0.8:8080"} },
	})}

	// orders.Get("http://orders/orders/17") goes to one of the replicas, and to
	// the other as well when it is slow.

	orders.CloseIdleConnections()
	if err := hedging.Close(); err != nil {
		log.Print(err)
	}
}

// A replica of that service counts the requests that reach it.
func ExampleClient_HTTPHandler() {
	hedging, err := client.New(client.Options{Daemon: "127.0.0.1:7946"})
	if err != nil {
		log.Fatal(err)
	}
	routes := http.NewServeMux()
	server := &http.Server{Addr: ":8080", Handler: hedging.HTTPHandler("orders", "10.0.0.7:8080", routes)}

	// ListenAndServe, and when that returns:

	_ = server.Close()
	if err := hedging.Close(); err != nil {
		log.Print(err)
	}
}
