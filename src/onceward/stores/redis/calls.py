"""Call the scripts: encode requests, send them to the server and decode the answers."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from redis.exceptions import NoScriptError

from onceward.protocol.audit import AuditSignature
from onceward.protocol.ports import Clock
from onceward.protocol.requests import Answer, AnyRequest, ClaimRequest, Renewal, Resolve
from onceward.stores.group_commit import GroupCommit
from onceward.stores.watchers import Watchers

from . import errors as faults
from . import records
from .requests import ENCODERS, Forget
from .scripts import script
from .transport import ClosedTransport, RedisTransport, Reply

MAX_BATCH = 256
"""Requests per script call. The server does nothing else during the call, for a few milliseconds."""

SERVER_TIME = records.TIME.pack(0)
NOT_RETRYABLE = frozenset({Resolve, Forget})
"""A repeated request would be refused, because the first one has changed what its sender has seen."""


class RedisCalls(GroupCommit, Watchers):
    """Sends requests to the script with the state table, and runs the other scripts."""

    def __init__(self, name: str, base: bytes, clock: Clock | None) -> None:
        super().__init__()
        self.name = name
        self.clock = clock  # public for wrappers that answer instead of a store in tests with a fake clock
        self._transport: RedisTransport = ClosedTransport(name)
        self._record = base + b"r:"
        self._state = base + b"n:"
        self._mark = base + b"m:"
        self._hour = base + b"c:"
        self._history = base + b"h:"
        self._audit = base + b"audit"
        self._channels = base + b"w:"

    async def send(
        self, requests: Sequence[AnyRequest | Forget], timeout: float, signed: AuditSignature | None = None
    ) -> list[Answer]:
        """Send requests to the script with the state table in one call, or in several if there are many."""
        if len(requests) > MAX_BATCH:
            return await self._send_in_batches(requests, timeout, signed)
        if not requests:
            return []
        name, retryable = ("apply", True) if signed is None else ("apply_signed", False)
        keys = [self._audit]
        parts: list[bytes] = []
        for one in requests:
            keys.append(self._record + one.id)
            parts += ENCODERS[type(one)](one)
            if type(one) in NOT_RETRYABLE:
                retryable = False
        signature = b"" if signed is None else encode_signature(signed)
        reply = await self.run(name, keys, (signature, b"".join(parts)), timeout, retryable=retryable)
        answers, error_text = records.decode_answers(requests, reply)
        if error_text:
            raise await self._store_error(error_text)
        if self._waiting:
            self.wake(one.id for one in requests if not isinstance(one, ClaimRequest | Renewal))
        return answers

    async def _send_in_batches(
        self, requests: Sequence[AnyRequest | Forget], timeout: float, signed: AuditSignature | None
    ) -> list[Answer]:
        deadline = time.monotonic() + timeout
        answers = []
        for start in range(0, len(requests), MAX_BATCH):
            left = deadline - time.monotonic()
            answers += await self.send(requests[start : start + MAX_BATCH], left, signed)
        return answers

    async def run_on_store(
        self, name: str, arguments: Sequence[bytes], timeout: float, *, retryable: bool = True
    ) -> Reply:
        """Run a script that finds its keys itself, or needs only the audit trail. `retryable` is as in `run`."""
        return await self.run(name, (self._audit,), arguments, timeout, retryable=retryable)

    async def run(
        self, name: str, keys: Sequence[bytes], arguments: Sequence[bytes], timeout: float, *, retryable: bool = True
    ) -> Reply:
        """Run a script, with the time as its first argument.

        Its source is sent only if the server lacks it, as after a restart or SCRIPT FLUSH. With `retryable`, it is sent
        again if the server had closed an idle connection.
        """
        now = SERVER_TIME if self.clock is None else records.TIME.pack(self.clock.now())
        target, arguments = script(name), (now, *arguments)
        try:
            return await self._transport.call(target.call(keys, arguments), timeout, retryable=retryable)
        except NoScriptError:
            return await self._command(target.call_with_source(keys, arguments), timeout, retryable=retryable)
        except faults.ERROR_REPLIES as error:
            raise await self._store_error(faults.error_text(error)) from error

    async def _command(self, payload: bytes, timeout: float, *, retryable: bool = True) -> Reply:
        """Send an encoded command and return the reply. `retryable` is as in `run`."""
        try:
            return await self._transport.call(payload, timeout, retryable=retryable)
        except faults.ERROR_REPLIES as error:
            raise await self._store_error(faults.error_text(error)) from error

    async def _store_error(self, text: str) -> Exception:
        """Return the error to raise for an error reply. If a replica replied, the next calls connect anew."""
        if faults.is_replica_error(text):
            await self._transport.drop()
        return faults.error_for(text, self.name)


def encode_signature(signed: AuditSignature) -> bytes:
    """Encode the signature as the audit trail stores it."""
    return msgspec.json.encode([signed.verb, signed.who, signed.why, signed.detail])
