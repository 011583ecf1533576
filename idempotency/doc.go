// Package idempotency makes writes safe to repeat: whoever sends a call twice
// under one key gets one effect and the same answer twice.
//
// A client puts one key on each logical call, the same on every attempt, hedge
// and retry. A server guards its handlers with a [Store]: the first copy runs,
// the others get its answer.
//
//	// gRPC client, gRPC server; the hedging interceptor comes behind ours.
//	grpc.NewClient(target, grpc.WithChainUnaryInterceptor(idempotency.UnaryClientInterceptor(guarded)), ...)
//	store, err := boltstore.New(db, "idempotency")
//	guard, err := idempotency.New(store, idempotency.Options{Caller: idempotency.PeerIdentity})
//	grpc.NewServer(grpc.ChainUnaryInterceptor(guard.UnaryServerInterceptor()), grpc.ChainStreamInterceptor(guard.StreamServerInterceptor()))
//
//	// HTTP client, HTTP server.
//	client := &http.Client{Transport: idempotency.NewTransport(http.DefaultTransport, guarded)}
//	guard, err := idempotency.New(store, idempotency.Options{Caller: idempotency.PeerIdentity})
//	http.ListenAndServe(addr, guard.Handler(mux))
//	ctx = idempotency.WithKey(ctx, orderID) // a key of your own, on either client
//
// # What the server promises
//
// Of all copies with one key, caller and request, one at a time runs, and none
// after one was answered finally. What the answer of a finished call is, is
// kept for a time ([Options.TTL]) with its header and trailer, byte for byte.
// The same key with other data (another method or path, query or body) is
// refused: InvalidArgument, 422. A copy that comes while another runs waits for
// its answer, or is told to come back ([Options.Wait]): Aborted, 409.
//
// An answer that is an error follows [Options.Refusals]: what the handler
// decided (FailedPrecondition, 409) is kept, what happened to it (Unavailable,
// 503, a panic) frees the key, and the next copy runs.
//
// The promise reaches as far as the store: all replicas that copies of a call may
// come to must share one. A hedge goes to another replica by design, so calls to
// several replicas want sqlstore; [Memory] and boltstore are for a server that is
// alone.
//
// # A crash between the effect and its record
//
// The key is reserved before the handler runs, for a lease that is prolonged
// while the process lives ([Options.Lease]). If the process dies in between, the
// lease runs out and the next copy runs. Whether the effect then happens twice
// is the handler's choice:
//
//   - It writes through the transaction of the store ([boltstore.Tx],
//     [sqlstore.Tx]). Effect and answer are committed together or not at all:
//     exactly once, also when a lease is lost.
//   - It writes elsewhere: at least once after a crash. Pass [IncomingKey] on to
//     what it calls, or make the effect unique by it.
//
// # What it is not
//
// It is not for streams: a stream that carries a key is refused. It is not a
// cache: reads (GET, HEAD, OPTIONS, TRACE) pass it by. It does not authenticate:
// see [Options.Caller], without which all callers share their keys.
//
// Read guard.go first: the life of a call. store.go is the contract of a store,
// with [storetest] as its suite.
//
// [boltstore.Tx]: https://pkg.go.dev/github.com/hedged-project/hedged/idempotency/boltstore#Tx
// [sqlstore.Tx]: https://pkg.go.dev/github.com/hedged-project/hedged/idempotency/sqlstore#Tx
// [storetest]: https://pkg.go.dev/github.com/hedged-project/hedged/idempotency/storetest
package idempotency
