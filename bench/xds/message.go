package main

import "time"

// plan is one series of publishes, which the server carries out and the clients
// wait for. Publish i changes the content of name (first+i) modulo the number of
// names to first+i; it is due at start + i*gap, and its time counts from then.
type plan struct {
	First int64
	N     int
	Start time.Time
	Gap   time.Duration
	Off   int // the publish that is urgent, from 1; 0: none
}

func (p plan) due(i int) time.Time { return p.Start.Add(time.Duration(i) * p.Gap) }

// published is what the server says of a plan.
type published struct {
	Mean, Max time.Duration // of a publish call
}

// received is what the clients say of a plan.
type received struct {
	Latencies  []time.Duration // of each publish, from its due instant to its last client
	Deliveries int64           // responses, all clients together
	Most       int64           // responses of one client
}
