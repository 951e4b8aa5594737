"""A small OTLP collector that shares no code with this house: grpcio, and the message classes of OpenTelemetry's own Python package.

Prints its address on the first line, then one JSON object per span that it was sent, before it acknowledges the batch. Lives until its
standard input closes, so that it never outlives the test that started it.
"""
import json
import sys
from concurrent import futures

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2


def plain(attributes):
    # The type is part of what is checked: a number that was sent as a string stays a string.
    return {attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value")) for attribute in attributes}


class Sink(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        for of_resource in request.resource_spans:
            resource = plain(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    seen = {
                        "resource": resource,
                        "trace": span.trace_id.hex(),
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "name": span.name,
                        "kind": trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                        "status": trace_pb2.Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
                        "start_ns": span.start_time_unix_nano,
                        "end_ns": span.end_time_unix_nano,
                        "attributes": plain(span.attributes),
                    }
                    print(json.dumps(seen), flush=True)
        return trace_service_pb2.ExportTraceServiceResponse()


# One worker: lines of two batches must not mix.
server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Sink(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(f"http://127.0.0.1:{port}", flush=True)
sys.stdin.read()
server.stop(grace=1).wait()
