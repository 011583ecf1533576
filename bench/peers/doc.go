// Package peers holds our xDS server against stock clients, each in a process of
// its own: grpc-go's xds resolver, grpc-js-xds on Node, and a raw delta client. They
// exercise acceptance, rejection, reconnecting and dropping with the types that they
// know; the server is neutral about types. The tests run where HEDGED_PEERS is 1;
// there a peer that is missing fails them.
package peers
