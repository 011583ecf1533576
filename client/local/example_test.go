package local_test

import (
	"log"
	"net/http"

	"github.com/hedged-project/hedged/client"
	"github.com/hedged-project/hedged/client/local"
)

// Hedging without a daemon: one option, and all else as with one.
func Example() {
	hedging, err := client.New(client.Options{Controller: local.New(local.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	orders := &http.Client{Transport: hedging.Transport("orders", nil, client.HTTPOptions{})}
	response, err := orders.Get("http://orders.internal/7")
	if err != nil {
		log.Fatal(err)
	}
	_ = response.Body.Close()
	if err := hedging.Close(); err != nil {
		log.Print(err)
	}
}
