"""Calls of the scripts: what goes to the server, and what comes back as answers."""

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
from .scripts import ID_SIZE, Prepared, Script, script

BATCH = 256
"""Requests in one call of a script: the server does nothing else meanwhile, for some two milliseconds."""

USUAL = {ClaimRequest, Complete}
USUAL_SIZE = {ID_SIZE}
ENCODERS = records.ENCODERS
SERVERS_TIME = records.TIME.pack(0)


class RedisTransport(Protocol):
    """How calls reach the server, in one of the two worlds."""

    async def call(self, payload: bytes, seconds: float, *, again: bool) -> Reply: ...
    async def close(self) -> None: ...
    def drop(self) -> None: ...


class RedisCalls(GroupCommit, Watchers):
    """Requests of any kind, by the short script where that will do, else by the one that knows the whole table."""

    def __init__(self, name: str, base: bytes, clock: Clock | None) -> None:
        super().__init__()
        self.name = name
        self.clock = clock  # shown for those who answer in the place of a store in fake time
        self._wire: RedisTransport | None = None
        self._record = base + b"r:"
        self._state = base + b"n:"
        self._mark = base + b"m:"
        self._hour = base + b"c:"
        self._ids = base + b"ids"
        self._both = (self._ids, base + b"audit")
        self._channels = base + b"w:"
        self._hot: Script = script("hot")
        self._apply: Script = script("apply")
        self._ready = Prepared(self._hot, self._both, self._record)

    def send(self, requests: Sequence[AnyRequest], timeout: float) -> Answers:
        """Claims, renewals and settlements, in one call (or a few, if there are many)."""
        if len(requests) == 1 and records.is_usual(requests[0]) and len(requests[0].id) == ID_SIZE:
            return self._alone(requests[0], timeout)
        return self._judged(requests, timeout) if len(requests) <= BATCH else self._in_parts(requests, timeout)

    async def _in_parts(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        deadline = time.monotonic() + timeout
        answers = []
        for start in range(0, len(requests), BATCH):
            left = deadline - time.monotonic()
            answers += await self._judged(requests[start : start + BATCH], left)
        return answers

    async def walk(self, name: str, arguments: Sequence[bytes], seconds: float, *, again: bool = True) -> Any:
        """A script that knows its way from the keys of the index and of the trail."""
        return await self.run(name, self._both, (self._time(), *arguments), seconds, again=again)

    async def run(
        self, name: str, keys: Sequence[bytes], arguments: Sequence[bytes], seconds: float, *, again: bool = True
    ) -> Any:
        return await self._call(script(name), keys, arguments, seconds, again=again)

    async def _alone(self, one: AnyRequest, timeout: float) -> list[Answer]:
        """The usual request of a caller who is alone, by the shortest way. If it is rare after all, asked at length."""
        encoded, now = records.request(one), self._time()
        reply = await self._open_wire(timeout).call(self._ready.call(one.id, now, encoded), timeout, again=True)
        if type(reply) is not bytes:
            keys, arguments = (*self._both, self._record + one.id), (now, b"", encoded)
            reply = await self._after(reply, self._hot, keys, arguments, timeout, again=True)
        answer = records.answer(one, reply)
        if answer is None:
            [answer] = await self._applied([one.id], [one], [encoded], timeout, again=True)
        if self._waiting and type(one) is Complete:
            self.wake((one.id,))
        return [answer]

    async def _judged(
        self, requests: Sequence[AnyRequest], timeout: float, signed: AuditSignature | None = None
    ) -> list[Answer]:
        if not requests:
            return []
        ids, kinds = [one.id for one in requests], set(map(type, requests))
        again = signed is None and Resolve not in kinds
        try:
            encoded = [ENCODERS[type(one)](one) for one in requests]
        except struct.error as error:
            raise ConfigurationError(f"a request holds a number or a text that is too large ({error})") from error
        noted = [one for one in requests if type(one) is Complete and one.note] if kinds <= USUAL else requests
        if signed is None and not noted:
            answers = await self._asked(ids, requests, encoded, timeout, again=again)
        else:
            answers = await self._applied(ids, requests, encoded, timeout, again=again, signed=signed)
        if self._waiting:
            self.wake(one.id for one in requests if not isinstance(one, ClaimRequest | Renewal))
        return answers

    async def _asked(
        self, ids: list[bytes], requests: Sequence[AnyRequest], encoded: list[bytes], timeout: float, *, again: bool
    ) -> list[Answer]:
        """By the short script first; what that leaves alone is asked at length."""
        began = time.monotonic()
        if set(map(len, ids)) == USUAL_SIZE:  # as `_sent_to`, in fewer steps
            now = self._time()
            data = await self._open_wire(timeout).call(self._ready.call_all(ids, now, encoded), timeout, again=again)
            if isinstance(data, RedisError):
                keys = [*self._both, *[self._record + id for id in ids]]
                data = await self._after(data, self._hot, keys, [now, b"", *encoded], timeout, again=again)
        else:
            data = await self._sent_to(self._hot, ids, encoded, timeout, again=again)
        answers, _ = records.answers(ids, requests, data)
        if None in answers:
            rare = [place for place, answer in enumerate(answers) if answer is None]
            left = timeout - (time.monotonic() - began)
            some = [ids[place] for place in rare], [requests[place] for place in rare]
            others = await self._applied(*some, [encoded[place] for place in rare], left, again=again)
            for place, answer in zip(rare, others, strict=True):
                answers[place] = answer
        return answers  # type: ignore[return-value]  # none is missing any more

    async def _applied(
        self,
        ids: list[bytes],
        requests: Sequence[Any],
        encoded: list[bytes],
        timeout: float,
        *,
        again: bool,
        signed: AuditSignature | None = None,
    ) -> list[Answer]:
        """By the script that knows the whole table."""
        data = await self._sent_to(self._apply, ids, encoded, timeout, again=again, signature=signature(signed))
        answers, wrong = records.answers(ids, requests, data)
        if wrong:
            raise self._refused(RedisError(wrong))
        return answers  # type: ignore[return-value]  # without an error, none is missing

    async def _sent_to(
        self,
        asked: Script,
        ids: list[bytes],
        encoded: list[bytes],
        timeout: float,
        *,
        again: bool,
        signature: bytes = b"",
    ) -> bytes:
        prefix = self._record
        keys = [*self._both, *[prefix + id for id in ids]]
        data: bytes = await self._call(asked, keys, [self._time(), signature, *encoded], timeout, again=again)
        return data

    async def _call(
        self, called: Script, keys: Sequence[bytes], arguments: Sequence[bytes], seconds: float, *, again: bool
    ) -> Any:
        reply = await self._open_wire(seconds).call(called.call(keys, arguments), seconds, again=again)
        if isinstance(reply, RedisError):
            reply = await self._after(reply, called, keys, arguments, seconds, again=again)
        return reply

    async def _after(
        self,
        refusal: RedisError,
        called: Script,
        keys: Sequence[bytes],
        arguments: Sequence[bytes],
        seconds: float,
        *,
        again: bool,
    ) -> Any:
        """What comes after a refusal: a server that was restarted, or told to forget, gets the script itself."""
        if refusal.code == "NOSCRIPT":
            whole = called.call_in_full(keys, arguments)
            reply = await self._open_wire(seconds).call(whole, seconds, again=again)
            if not isinstance(reply, RedisError):
                return reply
            refusal = reply
        raise self._refused(refusal)

    def _open_wire(self, seconds: float) -> RedisTransport:
        if self._wire is None:
            raise StoreUnavailable(f"{self.name} is not open", hint="open the store first, and close it last")
        if seconds <= 0:
            raise StoreUnavailable(f"{self.name}: the time for this call was over before its turn came")
        return self._wire

    def _refused(self, refusal: RedisError) -> Exception:
        if faults.is_replica(refusal) and self._wire is not None:
            self._wire.drop()
        return faults.explain(refusal, self.name)

    def _time(self) -> bytes:
        return SERVERS_TIME if self.clock is None else records.TIME.pack(self.clock.now())


def signature(signed: AuditSignature | None) -> bytes:
    """As the audit trail keeps it."""
    return b"" if signed is None else msgspec.json.encode([signed.verb, signed.who, signed.why, signed.detail])
