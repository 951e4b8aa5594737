"""Calls a running frontend through a stub generated from proto/, and without one, from what reflection tells.

    stub.py FOLDER_OF_PROTO HOST:PORT offer ITEM        through the stub, then from reflection alone
    stub.py FOLDER_OF_PROTO HOST:PORT retry ATTEMPTS    through the stub, on a channel that makes up to ATTEMPTS attempts
    stub.py FOLDER_OF_PROTO HOST:PORT traced CONTEXT    through the stub, as part of the trace that this traceparent names
"""
import json
import pathlib
import sys
import tempfile

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_tools import protoc

folder, address, command, argument = sys.argv[1:]


def generated():
    """The modules that protoc makes of the shop, in a folder that lasts as long as the import."""
    with tempfile.TemporaryDirectory() as out:
        sources = sorted(str(path) for path in pathlib.Path(folder).glob("shop/v1/*.proto"))
        arguments = ["protoc", f"-I{folder}", f"--python_out={out}", f"--grpc_python_out={out}", *sources]
        if protoc.main(arguments) != 0:
            sys.exit("protoc refused the files")
        sys.path.insert(0, out)
        from shop.v1 import frontend_pb2, frontend_pb2_grpc

        return frontend_pb2, frontend_pb2_grpc


def told(kind, call, request, **how):
    """Makes the call and prints the answer field by field, or the code."""
    try:
        offer = call(request, timeout=10, **how)
        print(kind, "offer", json.dumps({field.name: getattr(offer, field.name) for field in offer.DESCRIPTOR.fields}))
    except grpc.RpcError as error:
        print(kind, error.code().name, error.details())


messages, stubs = generated()
if command == "offer":
    with grpc.insecure_channel(address) as channel:
        told("stub", stubs.FrontendStub(channel).GetOffer, messages.GetOfferRequest(item=argument))
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        method = pool.FindServiceByName("shop.v1.Frontend").FindMethodByName("GetOffer")
        ask, answer = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
        path = f"/{method.containing_service.full_name}/{method.name}"
        call = channel.unary_unary(path, request_serializer=ask.SerializeToString, response_deserializer=answer.FromString)
        told("reflection", call, ask(item=argument))
elif command == "retry":
    # The back-off is short, since only the number of attempts matters here.
    policy = {
        "maxAttempts": int(argument),
        "initialBackoff": "0.01s",
        "maxBackoff": "0.05s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = {"methodConfig": [{"name": [{"service": "shop.v1.Frontend"}], "retryPolicy": policy}]}
    if argument == "1":
        config = {}  # a policy of one attempt is none, and gRPC refuses it as one
    with grpc.insecure_channel(address, options=[("grpc.service_config", json.dumps(config))]) as channel:
        told("stub", stubs.FrontendStub(channel).GetOffer, messages.GetOfferRequest(item="teapot"))
elif command == "traced":
    with grpc.insecure_channel(address) as channel:
        metadata = [("traceparent", argument)]
        told("stub", stubs.FrontendStub(channel).GetOffer, messages.GetOfferRequest(item="teapot"), metadata=metadata)
else:
    sys.exit(f"no such command: {command}")
