// Command subscribe prints the mode of each policy as it comes.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	hedgedv1 "github.com/hedged-project/hedged/api/hedged/v1"
)

func main() {
	const typeURL = "type.googleapis.com/hedged.v1.ServicePolicy"
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(context.Background())
	check(err)
	check(stream.Send(&discovery.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: "go-1"}, TypeUrl: typeURL, ResourceNamesSubscribe: os.Args[2:],
	}))
	for {
		response, err := stream.Recv()
		check(err)
		for _, r := range response.Resources {
			var policy hedgedv1.ServicePolicy
			check(r.Resource.UnmarshalTo(&policy))
			fmt.Println(policy.Name, policy.Mode)
		}
		check(stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: response.Nonce}))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
