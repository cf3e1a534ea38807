"""A call that is prepared is the call that it stands for, byte by byte."""

from __future__ import annotations

import pytest

from onceward.stores.redis.scripts import ID_SIZE, PreparedCall, assemble

SCRIPT = assemble("return 1")
BEFORE = (b"{p}:ids", b"{p}:audit")
PREFIX = b"{p}:r:"
NOW = b"12345678"


def ids(number: int) -> list[bytes]:
    return [bytes([one % 256, one // 256]).ljust(ID_SIZE, b"\r") for one in range(number)]


@pytest.mark.parametrize("number", [1, 2, 9, 10, 256])
@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 70_000])
def test_of_many(number: int, size: int) -> None:
    requests = [b"x" * (size if place % 2 == 0 else 7) for place in range(number)]
    keys = [*BEFORE, *[PREFIX + id for id in ids(number)]]
    prepared = PreparedCall(SCRIPT, BEFORE, PREFIX)
    assert prepared.call_all(ids(number), NOW, requests) == SCRIPT.call(keys, [NOW, b"", *requests])


def test_of_one() -> None:
    [id] = ids(1)
    prepared = PreparedCall(SCRIPT, BEFORE, PREFIX)
    assert prepared.call(id, NOW, b"request") == SCRIPT.call([*BEFORE, PREFIX + id], [NOW, b"", b"request"])
