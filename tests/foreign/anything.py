"""A service of every kind of call, and a client that uses all of it, in plain grpcio and without a message type: bytes in, bytes out.

    anything.py serve            prints its address, lives until its standard input closes
    anything.py call HOST:PORT   prints a JSON object per case: what the client saw and, in its words, what the server saw
    anything.py slow HOST:PORT   two streams of 300 MB, one each way, whose readers stop behind the first message until no more comes

What a client sees must not depend on what stands between the two.
"""
import hashlib
import json
import sys
import threading
import time
from concurrent import futures

import grpc

PREFIX = "/any.v1.Anything/"
OWN = [("own", "one"), ("own", "two"), ("own-bin", b"\x00\xff"), ("own-bin", b"\x01"), ("empty", "")]
LARGE = 4 * 1024 * 1024
PIECE, PIECES = 65_536, 4_800
ZEROS = b"\x00" * 1_000_000
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def plain(metadata):
    """Metadata as text, in an order that does not depend on who wrote it; values of one name keep theirs."""
    pairs = [(name, value.hex() if isinstance(value, bytes) else value) for name, value in metadata or []]
    return sorted(pairs, key=lambda pair: pair[0])


def is_ours(name):
    return name.startswith("retryscope-") or name in ("traceparent", "tracestate")


def digest(data):
    return f"{len(data)} {hashlib.sha256(data).hexdigest()[:16]}"


class Anything:
    def __init__(self):
        self.lock = threading.Lock()
        self.times = {}
        self.left = {}
        self.go_on = threading.Event()
        self.made = 0

    def pieces(self):
        """A long stream, and how much of it was taken."""
        for _ in range(PIECES):
            self.made += PIECE
            yield b"x" * PIECE

    def unary_made(self, request, context, seen):
        return str(self.made).encode()

    def begin(self, method, context):
        """Notes the call; what the server sees of it."""
        with self.lock:
            self.times[method] = self.times.get(method, 0) + 1
            times = self.times[method]
            left = self.left.setdefault(method, threading.Event())
        context.add_callback(left.set)
        metadata = plain(context.invocation_metadata())
        remaining = context.time_remaining()
        return {
            "times": times,
            "metadata": [pair for pair in metadata if not is_ours(pair[0])],
            "ours": [name for name, _ in metadata if is_ours(name)],
            # A minute, whatever the way costs.
            "deadline": remaining is not None and 30 < remaining <= 61,
            "host": context._rpc_event.call_details.host.decode(),
        }

    def service(self, call):
        name = call.method.removeprefix(PREFIX)
        kinds = {
            "unary": grpc.unary_unary_rpc_method_handler,
            "server": grpc.unary_stream_rpc_method_handler,
            "client": grpc.stream_unary_rpc_method_handler,
            "both": grpc.stream_stream_rpc_method_handler,
        }
        kind, _, rest = name.partition("_")
        run = getattr(self, f"{kind}_{rest}", None) if kind in kinds else None
        if run is None:
            return None
        return kinds[kind](lambda request, context: run(request, context, self.begin(name, context)))

    def unary_echo(self, request, context, seen):
        context.send_initial_metadata(OWN)
        context.set_trailing_metadata(OWN + [("last", "yes")])
        return json.dumps(seen | {"request": digest(request)}).encode()

    def unary_compressed(self, request, context, seen):
        context.set_compression(grpc.Compression.Gzip)
        return json.dumps(seen | {"request": digest(request)}).encode() + ZEROS

    def unary_large(self, request, context, seen):
        return request[::-1]

    def unary_fails(self, request, context, seen):
        context.send_initial_metadata(OWN)
        context.set_trailing_metadata(OWN + [("grpc-status-details-bin", b"\x08\x09\xff")])
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no: 100 % of \u00fcml\u00e4uts\nand lines")

    def unary_sleeps(self, request, context, seen):
        while context.is_active():
            time.sleep(0.005)
        return b""

    def unary_left(self, request, context, seen):
        """Whether the caller of another method has left; waits for it."""
        return json.dumps(self.left[request.decode()].wait(10)).encode()

    def server_count(self, request, context, seen):
        for number in range(int(request)):
            yield str(number).encode()
        context.set_trailing_metadata(OWN)

    def server_compressed(self, request, context, seen):
        context.set_compression(grpc.Compression.Gzip)
        for _ in range(3):
            yield ZEROS

    def server_breaks(self, request, context, seen):
        yield b"first"
        context.set_trailing_metadata(OWN)
        context.abort(grpc.StatusCode.UNAVAILABLE, "behind the first message")

    def server_endless(self, request, context, seen):
        while context.is_active():
            yield b"x" * 100
            time.sleep(0.005)

    def server_bytes(self, request, context, seen):
        yield from self.pieces()

    def client_sum(self, requests, context, seen):
        return json.dumps(seen | {"requests": [digest(request) for request in requests]}).encode()

    def client_fails(self, requests, context, seen):
        next(requests), next(requests)
        context.abort(grpc.StatusCode.UNAVAILABLE, f"time {seen['times']}")

    def client_bytes(self, requests, context, seen):
        read = len(next(requests))
        self.go_on.wait(60)
        return str(read + sum(len(request) for request in requests)).encode()

    def unary_go_on(self, request, context, seen):
        self.go_on.set()
        return b""

    def both_answers(self, requests, context, seen):
        for request in requests:
            yield request.upper()
        context.set_trailing_metadata(OWN)


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=UNLIMITED)
    server.add_generic_rpc_handlers([type("Handler", (grpc.GenericRpcHandler,), {"service": lambda _, call: anything.service(call)})()])
    anything = Anything()
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(grace=0).wait()


class Client:
    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, options=[*UNLIMITED, ("grpc.default_authority", "shop.example")])
        self.calls = 0

    def of(self, kind, name, given, **how):
        """A call under way, counted."""
        self.calls += 1
        return getattr(self.channel, kind)(PREFIX + name)(given, timeout=how.pop("timeout", 60), **how)

    def unary(self, name, request=b"", **how):
        self.calls += 1
        try:
            answer, call = self.channel.unary_unary(PREFIX + name).with_call(request, timeout=how.pop("timeout", 60), **how)
            return self.ended(call) | said(answer)
        except grpc.RpcError as error:
            return self.ended(error)

    def stream(self, call):
        """Everything that comes, and the end."""
        messages = []
        try:
            messages.extend(digest(message) for message in call)
        except grpc.RpcError:
            pass
        return self.ended(call) | {"messages": messages}

    def ended(self, call):
        return {
            "code": call.code().name,
            "details": call.details(),
            "initial": plain(call.initial_metadata()),
            "trailing": plain(call.trailing_metadata()),
        }

    def conversation(self):
        """Each request waits for the answer to the one before."""
        answered, answers = threading.Semaphore(1), []

        def asks():
            for word in [b"one", b"two", b"three"]:
                answered.acquire()
                yield word

        call = self.of("stream_stream", "both_answers", asks())
        for answer in call:
            answers.append(answer.decode())
            answered.release()
        return self.ended(call) | {"answers": answers}

    def cancelled(self):
        call = self.of("unary_stream", "server_endless", b"")
        first = digest(next(call))
        call.cancel()
        return {"first": first, "code": call.code().name, "left": self.unary("unary_left", b"server_endless")["said"]}

    def late(self):
        seen = self.unary("unary_sleeps", timeout=0.3)
        # Who of the two notices first is chance, and so are the words.
        return {"code": seen["code"], "left": self.unary("unary_left", b"unary_sleeps")["said"]}

    def cases(self):
        yield "unary", self.unary("unary_echo", b"hello", metadata=OWN)
        yield "empty", self.unary("unary_echo", timeout=None)
        gzip = grpc.Compression.Gzip
        yield "compressed", self.unary("unary_compressed", ZEROS, compression=gzip)
        yield "large", self.unary("unary_large", bytes(range(256)) * (LARGE // 256))
        yield "client stream", self.unary_of("client_sum", [b"a", b"", b"c" * 100_000])
        yield "client stream compressed", self.unary_of("client_sum", [ZEROS, ZEROS], compression=gzip)
        yield "client stream of nothing", self.unary_of("client_sum", [])
        yield "server stream", self.stream(self.of("unary_stream", "server_count", b"1000", metadata=OWN))
        yield "server stream of nothing", self.stream(self.of("unary_stream", "server_count", b"0"))
        yield "server stream compressed", self.stream(self.of("unary_stream", "server_compressed", b""))
        yield "conversation", self.conversation()
        yield "cancelled", self.cancelled()
        yield "late", self.late()
        yield "fails", self.unary("unary_fails", metadata=OWN)
        yield "breaks", self.stream(self.of("unary_stream", "server_breaks", b""))
        yield "client stream fails", self.unary_of("client_fails", [b"one", b"two", b"three"])
        yield "unknown", self.unary("nobody_knows")

    def unary_of(self, name, requests, **how):
        """One answer to a stream."""
        self.calls += 1
        try:
            call = self.channel.stream_unary(PREFIX + name)
            answer, call = call.with_call(iter(requests), timeout=60, **how)
            return self.ended(call) | said(answer)
        except grpc.RpcError as error:
            return self.ended(error)


def said(answer):
    """What came, and what the server said in it that it saw."""
    words = answer.rstrip(b"\x00")
    try:
        return {"said": json.loads(words), "answer": digest(answer[len(words) :])}
    except ValueError:
        return {"said": None, "answer": digest(answer)}


def call(address):
    client = Client(address)
    for name, seen in client.cases():
        print(json.dumps({"case": name, **seen}), flush=True)
    print(json.dumps({"case": "calls", "calls": client.calls}), flush=True)


def stuck(client, made):
    """How much was made once nothing more is taken: unchanged over many calls on the same way."""
    before, same = made(), 0
    while same < 300:
        client.unary("unary_left", b"unary_left")
        now = made()
        before, same = now, same + 1 if now == before else 0
    return before


def slow(address):
    client = Client(address)
    stream = client.of("unary_stream", "server_bytes", b"")
    read = len(next(stream))
    made = lambda: int(client.channel.unary_unary(PREFIX + "unary_made")(b"", timeout=60))
    print("stuck", stuck(client, made), flush=True)
    print("read", read + sum(len(message) for message in stream), flush=True)
    upload = Anything()
    answer = client.channel.stream_unary(PREFIX + "client_bytes").future(upload.pieces(), timeout=60)
    print("stuck", stuck(client, lambda: upload.made), flush=True)
    client.unary("unary_go_on")
    print("read", int(answer.result()), flush=True)


{"serve": serve, "call": call, "slow": slow}[sys.argv[1]](*sys.argv[2:])
