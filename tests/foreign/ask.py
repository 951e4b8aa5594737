"""Asks a running pricing service as any gRPC client would: health, reflection in both versions, and one call without a stub."""
import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

channel = grpc.insecure_channel(sys.argv[1])
health = health_pb2_grpc.HealthStub(channel)
for service in ["", "shop.v1.Pricing", "nobody"]:
    try:
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
        print(f"health {service}: {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}")
    except grpc.RpcError as error:
        print(f"health {service}: {error.code().name}")

# The messages of v1 and v1alpha are the same on the wire; only the path differs.
for version in ["v1", "v1alpha"]:
    ask = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    for answer in ask(iter([reflection_pb2.ServerReflectionRequest(list_services="*")]), timeout=5):
        for service in answer.list_services_response.service:
            print(f"reflection {version} {service.name}")

pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
method = pool.FindServiceByName("shop.v1.Pricing").FindMethodByName("GetPrice")
request = message_factory.GetMessageClass(method.input_type)
response = message_factory.GetMessageClass(method.output_type)
call = channel.unary_unary(
    "/shop.v1.Pricing/GetPrice", request_serializer=request.SerializeToString, response_deserializer=response.FromString
)
print("price", call(request(item="teapot"), timeout=5).item)
