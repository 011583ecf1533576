// Command caller is the client of docs/quickstart.md: it calls the replicas that it
// is given a hundred times a second, and says every five seconds how that went.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"time"

	"github.com/hedged-project/hedged/client"
)

func main() {
	daemon := flag.String("daemon", "127.0.0.1:7946", "`HOST:PORT` of hedged's gRPC port")
	flag.Parse()
	replicas := flag.Args()
	if len(replicas) < 2 {
		log.Fatal("want the HOST:PORT of two replicas or more: a hedge goes to another one")
	}
	hedging, err := client.New(client.Options{Daemon: *daemon})
	if err != nil {
		log.Fatal(err)
	}
	web := &http.Client{
		Transport: hedging.Transport("greeter", nil, client.HTTPOptions{Replicas: func() []string { return replicas }}),
		Timeout:   5 * time.Second,
	}
	took := make(chan time.Duration, 1000)
	go say(took, hedging)
	for range time.Tick(10 * time.Millisecond) {
		go func() {
			begun := time.Now()
			resp, err := web.Get("http://greeter/")
			if err != nil {
				log.Print(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body) // the answer is of no interest
			resp.Body.Close()
			took <- time.Since(begun)
		}()
	}
}

// say prints how the calls of each five seconds went.
func say(took <-chan time.Duration, hedging *client.Client) {
	var calls []time.Duration
	every := time.Tick(5 * time.Second)
	for {
		select {
		case d := <-took:
			calls = append(calls, d)
		case <-every:
			if len(calls) == 0 {
				continue
			}
			slices.Sort(calls)
			fmt.Printf("%d calls, p99 %v, slowest %v; %d hedges so far\n", len(calls),
				calls[len(calls)*99/100].Round(time.Millisecond), calls[len(calls)-1].Round(time.Millisecond), hedging.Stats()[0].Hedges)
			calls = calls[:0]
		}
	}
}
