package client_test

import (
	"log"

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
	defer func() { _ = hedging.Close() }()

	conn, err := grpc.NewClient("dns:///orders:50051",
		hedging.DialOptions("orders", grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
}

// A replica of that service counts the attempts that reach it.
func ExampleClient_ServerOption() {
	hedging, err := client.New(client.Options{Daemon: "127.0.0.1:7946"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = hedging.Close() }()

	server := grpc.NewServer(hedging.ServerOption("orders", "10.0.0.7:50051"))
	defer server.Stop()
}
