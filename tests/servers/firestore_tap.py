"""A gRPC proxy in front of the emulator that counts what Google bills, and loses answers on request.

Requests and answers are forwarded as bytes. A read is a requested document, a write is a written document.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
from google.cloud.firestore_v1.types import firestore as messages

SERVICE = "/google.firestore.v1.Firestore/"
STREAMS = {"BatchGetDocuments", "RunQuery", "RunAggregationQuery"}


class Bill(NamedTuple):
    """The billed reads and writes, and the calls."""

    reads: int
    writes: int
    calls: dict[str, int]


class Tap(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Forwards everything. `lose`: the next answers of these methods are lost, after the work was done."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target)
        self._lock = threading.Lock()
        self._reads = self._writes = 0
        self._calls: Counter[str] = Counter()
        self._losing: Counter[str] = Counter()
        self._refusing: Counter[str] = Counter()
        self._holding: Counter[str] = Counter()
        self.before: Callable[[str], None] = lambda _: None
        """Called with the name of each method before the call is forwarded."""

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        name = method.removeprefix(SERVICE)
        if name in STREAMS:
            call = self._channel.unary_stream(method)
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._many(name, call, request, context)
            )
        single = self._channel.unary_unary(method)
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._one(name, single, request, context))

    def lose(self, method: str, times: int = 1) -> None:
        self._losing[method] += times

    def hold(self, method: str, times: int = 1) -> None:
        """Hold the next answers back, after the work was done, until the caller has given up."""
        self._holding[method] += times

    def abort(self, method: str, times: int = 1) -> None:
        """Refuse the next commits, as the server does on a conflict with other transactions."""
        self._refusing[method] += times

    @contextmanager
    def billed(self) -> Iterator[Callable[[], Bill]]:
        """Count from here on; call the yielded function for the bill."""
        with self._lock:
            self._reads = self._writes = 0
            self._calls.clear()
        yield lambda: Bill(self._reads, self._writes, dict(self._calls))

    def close(self) -> None:
        self._channel.close()

    def _one(self, name: str, call: Any, request: bytes, context: Any) -> bytes:
        self.before(name)
        if self._is_struck(self._refusing, name):
            self._roll_back(request, context)
            context.abort(grpc.StatusCode.ABORTED, "as the test requested")
        try:
            answer: bytes = call(request, timeout=context.time_remaining(), metadata=_passed(context))
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        self._count(name, request, [])
        if self._is_struck(self._losing, name):
            context.abort(grpc.StatusCode.UNAVAILABLE, "as the test requested")
        if self._is_struck(self._holding, name):
            while context.is_active():
                time.sleep(0.01)
        return answer

    def _many(self, name: str, call: Any, request: bytes, context: Any) -> Iterator[bytes]:
        self.before(name)
        try:
            answers = list(call(request, timeout=context.time_remaining(), metadata=_passed(context)))
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        self._count(name, request, answers)
        if self._is_struck(self._losing, name):
            context.abort(grpc.StatusCode.UNAVAILABLE, "as the test requested")
        yield from answers

    def _is_struck(self, planned: Counter[str], name: str) -> bool:
        with self._lock:
            strikes = planned[name] > 0
            planned[name] -= strikes
            return strikes

    def _roll_back(self, request: bytes, context: Any) -> None:
        """Roll back, as the server does when it aborts: else its locks would remain."""
        refused = messages.CommitRequest.deserialize(request)
        if refused.transaction:
            over = messages.RollbackRequest(database=refused.database, transaction=refused.transaction)
            self._channel.unary_unary(f"{SERVICE}Rollback")(
                messages.RollbackRequest.serialize(over), metadata=_passed(context)
            )

    def _count(self, name: str, request: bytes, answers: list[bytes]) -> None:
        with self._lock:
            self._calls[name] += 1
            if name == "Commit":
                self._writes += len(messages.CommitRequest.deserialize(request).writes)
            elif name == "BatchWrite":
                self._writes += len(messages.BatchWriteRequest.deserialize(request).writes)
            elif name == "BatchGetDocuments":
                self._reads += len(messages.BatchGetDocumentsRequest.deserialize(request).documents)
            elif name == "RunQuery":
                hits = sum(bool(messages.RunQueryResponse.deserialize(one).document.name) for one in answers)
                self._reads += max(hits, 1)  # a query without a hit is one read


def _passed(context: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in context.invocation_metadata() if not name.startswith(("grpc-", "user-"))]


@contextmanager
def tapped(target: str) -> Iterator[tuple[Tap, str]]:
    """Start a tap. Yield it and its address."""
    tap = Tap(target)
    server = grpc.server(ThreadPoolExecutor(16), handlers=[tap])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield tap, f"127.0.0.1:{port}"
    finally:
        server.stop(1).wait()
        tap.close()
