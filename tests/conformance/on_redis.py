"""Conformance classes on real Redis and Valkey: how they open the store, read the database directly, and overwrite."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import redis

from onceward.protocol.ports import Clock
from onceward.protocol.record import Record
from onceward.stores.clock import WallClock
from onceward.stores.redis import RedisStore
from onceward.stores.redis.records import decode_record
from onceward.testing.conformance import StoreConformance
from tests.servers.redis import RedisServer, shared

MIN_READER = 0  # offset of that byte in a record


class OnRedis(StoreConformance):
    """A prefix for each directory. Children of a test find the server by its port."""

    kind: ClassVar[str] = "valkey"

    def open(self, directory: Path, clock: Clock) -> RedisStore:
        own_time = isinstance(clock, WallClock)
        return RedisStore(url(self.kind), prefix=prefix(directory), clock=None if own_time else clock)

    def raw(self, directory: Path, id: bytes) -> Mapping[str, object] | None:
        with client(self.kind) as raw:
            found = stored_record(raw, prefix(directory), id)
        if found is None:
            return None
        return {name: getattr(found, name) for name in found.__struct_fields__}

    def writes(self, directory: Path) -> int:
        with client(self.kind) as raw:
            info: Any = raw.info("persistence")
        changes: int = info["rdb_changes_since_last_save"]
        return changes

    def overwrite(self, directory: Path, id: bytes, **fields: Any) -> None:
        assert list(fields) == ["min_reader"], f"{fields}: only the version can be overwritten"
        with client(self.kind) as raw:
            raw.setrange(name(directory, id), MIN_READER, bytes([fields["min_reader"]]))


def prefix(directory: Path) -> str:
    return f"{directory.parent.name}/{directory.name}"


def name(directory: Path, id: bytes) -> bytes:
    return b"{%b}:r:%b" % (prefix(directory).encode(), id)


def stored_record(raw: Any, prefix: str, id: bytes) -> Record | None:
    """Read a record from the database, without a store."""
    base = b"{%b}:" % prefix.encode()
    data = raw.get(base + b"r:" + id)
    return None if data is None else decode_record(id, data)


def url(kind: str) -> str:
    """Return the URL of this test process's server, or of its parent's server if there is one."""
    variable = f"ONCEWARD_TEST_{kind.upper()}"
    if variable not in os.environ:
        os.environ[variable] = shared(kind).url()
    return os.environ[variable]


def client(kind: str) -> redis.Redis:
    return redis.Redis.from_url(url(kind).partition("?")[0])


__all__ = ["OnRedis", "RedisServer"]
