import queue
import sys

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from hedged.v1 import policy_pb2

TYPE = "type.googleapis.com/hedged.v1.ServicePolicy"
requests = queue.SimpleQueue()
requests.put(discovery_pb2.DeltaDiscoveryRequest(
    node={"id": "python-1"}, type_url=TYPE, resource_names_subscribe=[sys.argv[2]]))
ads = ads_pb2_grpc.AggregatedDiscoveryServiceStub(grpc.insecure_channel(sys.argv[1]))
for response in ads.DeltaAggregatedResources(iter(requests.get, None)):
    for resource in response.resources:
        policy = policy_pb2.ServicePolicy()
        resource.resource.Unpack(policy)
        print(policy.name, policy_pb2.Mode.Name(policy.mode), flush=True)
    for name in response.removed_resources:
        print(name, "no policy", flush=True)
    requests.put(discovery_pb2.DeltaDiscoveryRequest(type_url=TYPE, response_nonce=response.nonce))
