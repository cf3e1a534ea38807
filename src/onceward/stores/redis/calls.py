"""Call the scripts: encode requests, send them to the server and decode the answers."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from onceward.errors import ConfigurationError, StoreUnavailable
from onceward.protocol.audit import AuditSignature
from onceward.protocol.ports import Clock
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Complete, Renewal, Resolve
from onceward.protocol.runtime import Answers
from onceward.stores.group_commit import GroupCommit
from onceward.stores.watchers import Watchers

from . import errors as faults
from . import records
from .resp import RedisError, Reply
from .scripts import ID_SIZE, PreparedCall, Script, script

MAX_BATCH = 256
"""Requests per script call. The server does nothing else during the call, for about two milliseconds."""

FAST_REQUESTS = {ClaimRequest, Complete}
FAST_ID_SIZES = {ID_SIZE}
ENCODERS = records.ENCODERS
SERVER_TIME = records.TIME.pack(0)


class RedisTransport(Protocol):
    """Sends calls to the server; implemented once for threads and once for asyncio."""

    async def call(self, payload: bytes, timeout: float, *, retryable: bool) -> Reply: ...
    async def close(self) -> None: ...
    def drop(self) -> None: ...


class RedisCalls(GroupCommit, Watchers):
    """Sends requests to the fast script, and to the one with the full state table where that does not suffice."""

    def __init__(self, name: str, base: bytes, clock: Clock | None) -> None:
        super().__init__()
        self.name = name
        self.clock = clock  # public for wrappers that answer instead of a store in tests with a fake clock
        self._transport: RedisTransport | None = None
        self._record = base + b"r:"
        self._state = base + b"n:"
        self._mark = base + b"m:"
        self._hour = base + b"c:"
        self._ids = base + b"ids"
        self._index_keys = (self._ids, base + b"audit")
        self._channels = base + b"w:"
        self._fast: Script = script("fast")
        self._apply: Script = script("apply")
        self._prepared = PreparedCall(self._fast, self._index_keys, self._record)

    def send(self, requests: Sequence[AnyRequest], timeout: float) -> Answers:
        """Send claims, renewals and settlements in one call, or in several if there are many."""
        if len(requests) == 1 and records.is_fast(requests[0]) and len(requests[0].id) == ID_SIZE:
            return self._send_one(requests[0], timeout)
        return (
            self._send_batch(requests, timeout)
            if len(requests) <= MAX_BATCH
            else self._send_in_batches(requests, timeout)
        )

    async def _send_in_batches(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        deadline = time.monotonic() + timeout
        answers = []
        for start in range(0, len(requests), MAX_BATCH):
            left = deadline - time.monotonic()
            answers += await self._send_batch(requests[start : start + MAX_BATCH], left)
        return answers

    async def run_on_index(
        self, name: str, arguments: Sequence[bytes], timeout: float, *, retryable: bool = True
    ) -> Any:
        """Run a script that needs only the keys of the index and the audit trail. `retryable` is as in `run`."""
        return await self.run(name, self._index_keys, (self._time(), *arguments), timeout, retryable=retryable)

    async def run(
        self, name: str, keys: Sequence[bytes], arguments: Sequence[bytes], timeout: float, *, retryable: bool = True
    ) -> Any:
        """Run a script. With `retryable`, it is sent again if the server had closed an idle connection."""
        return await self._call(script(name), keys, arguments, timeout, retryable=retryable)

    async def _send_one(self, one: AnyRequest, timeout: float) -> list[Answer]:
        """Send a single common request with the prepared call. If the fast script cannot handle it, send it in full."""
        encoded, now = records.encode_request(one), self._time()
        reply = await self._open_transport(timeout).call(
            self._prepared.call(one.id, now, encoded), timeout, retryable=True
        )
        if type(reply) is not bytes:
            keys, arguments = (*self._index_keys, self._record + one.id), (now, b"", encoded)
            reply = await self._handle_error(reply, self._fast, keys, arguments, timeout, retryable=True)
        answer = records.decode_answer(one, reply)
        if answer is None:
            [answer] = await self._send_full([one.id], [one], [encoded], timeout, retryable=True)
        if self._waiting and type(one) is Complete:
            self.wake((one.id,))
        return [answer]

    async def _send_batch(
        self, requests: Sequence[AnyRequest], timeout: float, signed: AuditSignature | None = None
    ) -> list[Answer]:
        if not requests:
            return []
        ids, kinds = [one.id for one in requests], set(map(type, requests))
        retryable = signed is None and Resolve not in kinds
        try:
            encoded = [ENCODERS[type(one)](one) for one in requests]
        except struct.error as error:
            raise ConfigurationError(f"a request holds a number or a text that is too large ({error})") from error
        noted = [one for one in requests if type(one) is Complete and one.note] if kinds <= FAST_REQUESTS else requests
        if signed is None and not noted:
            answers = await self._send_fast(ids, requests, encoded, timeout, retryable=retryable)
        else:
            answers = await self._send_full(ids, requests, encoded, timeout, retryable=retryable, signed=signed)
        if self._waiting:
            self.wake(one.id for one in requests if not isinstance(one, ClaimRequest | Renewal))
        return answers

    async def _send_fast(
        self, ids: list[bytes], requests: Sequence[AnyRequest], encoded: list[bytes], timeout: float, *, retryable: bool
    ) -> list[Answer]:
        """Send to the fast script first, then send what it did not handle to the full one."""
        started = time.monotonic()
        if set(map(len, ids)) == FAST_ID_SIZES:  # same as `_call_records`, but faster
            now = self._time()
            data = await self._open_transport(timeout).call(
                self._prepared.call_all(ids, now, encoded), timeout, retryable=retryable
            )
            if isinstance(data, RedisError):
                keys = [*self._index_keys, *[self._record + id for id in ids]]
                data = await self._handle_error(
                    data, self._fast, keys, [now, b"", *encoded], timeout, retryable=retryable
                )
        else:
            data = await self._call_records(self._fast, ids, encoded, timeout, retryable=retryable)
        answers, _ = records.decode_answers(ids, requests, data)
        if None in answers:
            rest = [index for index, answer in enumerate(answers) if answer is None]
            left = timeout - (time.monotonic() - started)
            rest_ids, rest_requests = [ids[index] for index in rest], [requests[index] for index in rest]
            rest_encoded = [encoded[index] for index in rest]
            found = await self._send_full(rest_ids, rest_requests, rest_encoded, left, retryable=retryable)
            for index, answer in zip(rest, found, strict=True):
                answers[index] = answer
        return answers  # type: ignore[return-value]  # none is missing now

    async def _send_full(
        self,
        ids: list[bytes],
        requests: Sequence[Any],
        encoded: list[bytes],
        timeout: float,
        *,
        retryable: bool,
        signed: AuditSignature | None = None,
    ) -> list[Answer]:
        """Send to the script with the full state table."""
        data = await self._call_records(
            self._apply, ids, encoded, timeout, retryable=retryable, encode_signature=encode_signature(signed)
        )
        answers, error_text = records.decode_answers(ids, requests, data)
        if error_text:
            raise self._store_error(RedisError(error_text))
        return answers  # type: ignore[return-value]  # without an error, none is missing

    async def _call_records(
        self,
        target: Script,
        ids: list[bytes],
        encoded: list[bytes],
        timeout: float,
        *,
        retryable: bool,
        encode_signature: bytes = b"",
    ) -> bytes:
        prefix = self._record
        keys = [*self._index_keys, *[prefix + id for id in ids]]
        data: bytes = await self._call(
            target, keys, [self._time(), encode_signature, *encoded], timeout, retryable=retryable
        )
        return data

    async def _call(
        self, target: Script, keys: Sequence[bytes], arguments: Sequence[bytes], timeout: float, *, retryable: bool
    ) -> Any:
        reply = await self._open_transport(timeout).call(target.call(keys, arguments), timeout, retryable=retryable)
        if isinstance(reply, RedisError):
            reply = await self._handle_error(reply, target, keys, arguments, timeout, retryable=retryable)
        return reply

    async def _handle_error(
        self,
        error: RedisError,
        target: Script,
        keys: Sequence[bytes],
        arguments: Sequence[bytes],
        timeout: float,
        *,
        retryable: bool,
    ) -> Any:
        """Send the script's source if the server lacks it, as after a restart or SCRIPT FLUSH. Otherwise raise."""
        if error.code == "NOSCRIPT":
            payload = target.call_with_source(keys, arguments)
            reply = await self._open_transport(timeout).call(payload, timeout, retryable=retryable)
            if not isinstance(reply, RedisError):
                return reply
            error = reply
        raise self._store_error(error)

    def _open_transport(self, timeout: float) -> RedisTransport:
        if self._transport is None:
            raise StoreUnavailable(
                f"{self.name} is not open", hint="open the store before the first call and close it after the last"
            )
        if timeout <= 0:
            raise StoreUnavailable(f"{self.name}: the call's timeout expired before it could be sent")
        return self._transport

    def _store_error(self, error: RedisError) -> Exception:
        if faults.is_replica_error(error) and self._transport is not None:
            self._transport.drop()
        return faults.error_for(error, self.name)

    def _time(self) -> bytes:
        return SERVER_TIME if self.clock is None else records.TIME.pack(self.clock.now())


def encode_signature(signed: AuditSignature | None) -> bytes:
    """Encode the signature as the audit trail stores it."""
    return b"" if signed is None else msgspec.json.encode([signed.verb, signed.who, signed.why, signed.detail])
