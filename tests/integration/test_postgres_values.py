"""Arrays as they are packed here and as the server reads them, both ways."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from onceward.bridge import run
from onceward.stores.postgres.wire import Wire
from onceward.worlds.threads import Threads
from tests.servers.postgres import URL

SOME: dict[str, tuple[str, list[Any]]] = {
    "nothing": ("bytea", []),
    "bytes": ("bytea", [b"ab", b"", b"\0\xff", b"x" * 70_000]),
    "bytes of one length": ("bytea", [b"ab", b"\0\0", b"zz"]),
    "bytes that are missing": ("bytea", [b"ab", None, b""]),
    "texts": ("text", ["a", "", "b c", "{,}\\"]),
    "texts of one length": ("text", ["a", "b"]),
    "no text": ("text", []),
    "texts that are missing": ("text", [None, "a"]),
    "texts beyond ASCII": ("text", ["a", "ä\u20ac", "\U0001f600"]),
    "what no text of the server holds": ("text", ["a\0b", "\ufdd0", "\ufdd00", "plain"]),
    "numbers": ("bigint", [0, -1, 2**63 - 1]),
    "one number": ("bigint", [7]),
    "numbers that are missing": ("bigint", [None, 1]),
    "all numbers missing": ("bigint", [None, None]),
}


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("what", SOME)
def test_an_array_comes_back_as_it_was(what: str) -> None:
    kind, values = SOME[what]

    async def there_and_back() -> list[Any]:
        deadline = time.monotonic() + 30
        wire = await Wire.connect(os.environ[URL].encode(), Threads(), "the server", deadline)
        try:
            rows = await wire.ask(f"SELECT one FROM unnest($1::{kind}[]) AS one", deadline, values)
        finally:
            wire.close()
        return [value for (value,) in rows]

    assert run(there_and_back()) == values
