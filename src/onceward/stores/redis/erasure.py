"""Erase everything that names a key. States have no index, so finding them visits all keys of the database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from onceward.errors import RecordBroken
from onceward.protocol.audit import AuditSignature
from onceward.protocol.capabilities import Erasure
from onceward.protocol.erasure import ErasureFilter, FoundEntity
from onceward.protocol.record import Record

from .calls import MAX_BATCH, encode_signature
from .latest import RedisLatest, decode_state
from .maintenance import KEYS_PER_CALL, UNREADABLE_ENTRY, decode_entry, redact_entry
from .scripts import encode_command

COUNTS: Final = b"%d" % KEYS_PER_CALL


class RedisErasure(RedisLatest):
    """The erasure of `RedisStore`."""

    @property
    def erasure(self) -> Erasure:
        return self

    async def delete_free(self, records: Sequence[Record], *, timeout: float) -> int:
        deadline, deleted = time.monotonic() + timeout, 0
        for start in range(0, len(records), MAX_BATCH):
            keys = (self._audit, *[self._record + one.id for one in records[start : start + MAX_BATCH]])
            deleted += await self.run("delete_free", keys, (), deadline - time.monotonic())
        return deleted

    async def find_entities(self, wanted: ErasureFilter, *, timeout: float) -> list[FoundEntity]:
        deadline, at = time.monotonic() + timeout, b"0"
        found: dict[bytes, FoundEntity] = {}
        while True:
            at, keys = await self._scan_keys(at, KEYS_PER_CALL, deadline - time.monotonic())
            ids = [key[len(self._state) :] for key in keys]
            for one in await self._read_each(self._state, ids, _decode_entity, deadline - time.monotonic()):
                if one is not None and (not one.readable or wanted.selects(one.scope, one.entity)):
                    found[one.id] = one
            if at == b"0":
                return list(found.values())

    async def delete_entities(self, found: Sequence[FoundEntity], *, timeout: float) -> int:
        deadline, deleted = time.monotonic() + timeout, 0
        for start in range(0, len(found), MAX_BATCH):
            keys = [self._state + one.id for one in found[start : start + MAX_BATCH]]
            deleted += await self._command(encode_command(b"DEL", *keys), deadline - time.monotonic())
        return deleted

    async def redact_audit(self, wanted: ErasureFilter, *, timeout: float, dry_run: bool = False) -> int:
        """Rewrite matching entries, and those with invalid content, which may name any key.

        This needs no script: apart from erasures and purges, entries never change.
        """
        deadline, at, changed = time.monotonic() + timeout, b"0", 0
        while True:
            command = encode_command(b"HSCAN", self._audit, at, b"COUNT", COUNTS)
            at, fields = await self._command(command, deadline - time.monotonic())
            for field, data in zip(fields[::2], fields[1::2], strict=True):
                if field in (b"first", b"last"):
                    continue
                new = _redacted(data, wanted)
                if new == data:
                    continue
                changed += 1
                if not dry_run:
                    rewrite = encode_command(b"HSET", self._audit, field, new)
                    await self._command(rewrite, deadline - time.monotonic())
            if at == b"0":
                return changed

    async def add_audit(self, signed: AuditSignature, count: int, *, timeout: float) -> None:
        await self.run_on_store("add_audit", (encode_signature(signed), b"%d" % count), timeout, retryable=False)

    async def discard_deleted(self, *, timeout: float) -> str:  # noqa: ARG002 (there is nothing to do)
        return ""


def _decode_entity(id: bytes, data: bytes | None, now: int) -> FoundEntity | None:
    """Return the entity of a state. Invalid content must not prevent the erasure of other entities."""
    try:
        state = decode_state(id, data, now)
    except RecordBroken:
        return FoundEntity(id, "", "", readable=False)
    return None if state is None else FoundEntity(id, state.scope, state.entity)


def _redacted(data: bytes, wanted: ErasureFilter) -> bytes:
    """Return a stored audit entry as it is after the erasure."""
    try:
        entry = decode_entry(data)
    except RecordBroken:
        return UNREADABLE_ENTRY
    return redact_entry(data) if entry.key and wanted.selects(entry.scope, entry.key) else data
