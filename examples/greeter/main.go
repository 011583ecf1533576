// Command greeter is one replica of the service of docs/quickstart.md: it answers
// within some milliseconds and stalls for a second on one request in a hundred.
package main

import (
	"flag"
	"log"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/hedged-project/hedged/client"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9001", "`HOST:PORT` to serve on, and the replica's name")
	daemon := flag.String("daemon", "127.0.0.1:7946", "`HOST:PORT` of hedged's gRPC port")
	flag.Parse()
	hedging, err := client.New(client.Options{Daemon: *daemon})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Addr:              *addr,
		Handler:           hedging.HTTPHandler("greeter", *addr, http.HandlerFunc(greet)),
		ReadHeaderTimeout: 5 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}

func greet(w http.ResponseWriter, r *http.Request) {
	latency := 5*time.Millisecond + rand.N(10*time.Millisecond)
	if rand.N(100) == 0 {
		latency = time.Second
	}
	select {
	case <-time.After(latency):
		_, _ = w.Write([]byte("hello\n")) // its caller may have gone
	case <-r.Context().Done(): // what makes hedges cheap: the loser stops
	}
}
