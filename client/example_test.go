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
