"""Beside an event loop, each call into C gets little data, and few of them run between two pauses.

CPython runs no other thread during such a call. `test_loop_stays_free.py` checks that large values go to another
thread at all; how long the gaps really are is measured by `python -m bench --only loop`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sized
from decimal import Decimal
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from onceward import AsyncOnce
from onceward.keys import canonical, tagged
from onceward.keys.runs import LIGHT
from onceward.results import extensions, frames, reader, writer
from onceward.results import result_type as results
from onceward.runtime import aio

MB = 1 << 20
MANY = 30_000
"""Large enough for at least a dozen pieces."""

VALUES: dict[str, Any] = {
    "dicts": [{"id": x, "name": f"n{x}", "price": x / 4} for x in range(MANY)],
    "one dict": {f"key {x}": x for x in range(MANY)},
    "a list in a dict in a list": [1, {"rows": [[x, [x]] for x in range(MANY)], "more": {"x": list(range(MANY))}}],
    "numbers": list(range(200_000)),
    "empty": [[] for _ in range(100_000)],
    "large bytes": bytes(8 * MB),
    "many bytes": [bytes(100_000) for _ in range(50)],
    "many texts": ["x" * 100_000 for _ in range(50)],
    "tuples": tuple((x, str(x)) for x in range(MANY)),
    "decimals": [Decimal(x) for x in range(MANY)],
    "a set": set(range(MANY)),
    "int keys": {x: [x] for x in range(MANY)},
    "bytes that look like infinity": b"\xcb\x7f\xf0" * MB,
}
PLAIN = tuple(VALUES)[:8]
ARGUMENTS = VALUES | {"a large text": "…" * MB, "a bytearray": bytearray(2 * MB)}  # as results they need one call


class Spy:
    """Records how much each call into C was given (in values or 32 bytes of text), and how much between two pauses."""

    def __init__(self) -> None:
        self.largest: dict[str, int] = {}
        self.pauses = 0
        self.since_pause = self.most_between_pauses = 0

    def over(self, patch: pytest.MonkeyPatch, owner: Any, name: str, size: Callable[..., int]) -> None:
        original = getattr(owner, name)

        def spied(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            self.saw(name.strip("_"), size(*args))
            return made

        patch.setattr(owner, name, spied)

    def saw(self, name: str, size: int) -> None:
        self.largest[name] = max(self.largest.get(name, 0), size)
        self.since_pause += size
        self.most_between_pauses = max(self.most_between_pauses, self.since_pause)

    def pause(self) -> None:
        self.pauses += 1
        self.since_pause = 0


def weight_of(value: Any, *_: Any) -> int:
    """Count values, nested ones too, and a fraction for texts, which copy quickly. Stop when there are many."""
    total, todo = 0, [value]
    while todo and total < 100 * LIGHT:
        one = todo.pop()
        total += 1
        if isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set):
            todo += one
        elif isinstance(one, str | bytes | bytearray):
            total += len(one) // 32
    return total


def packed_weight(data: Sized, *_: Any) -> int:
    """Estimate: most values take three bytes or more, texts far more."""
    return len(data) // 9


def searched(data: bytes, start: int = 0, end: int = sys.maxsize) -> int:
    return (min(end, len(data)) - start) // 32


class Loader:
    """Replaces `ormsgpack` in `frames` and `reader`, which look up `unpackb` in the module."""

    Ext = ormsgpack.Ext

    def __init__(self, spy: Spy) -> None:
        self._spy = spy

    def unpackb(self, data: Any, **hooks: Any) -> Any:
        made = ormsgpack.unpackb(data, **hooks)
        self._spy.saw("unpackb", packed_weight(data))
        return made


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy()
    spy.over(monkeypatch, canonical, "_packb", weight_of)
    spy.over(monkeypatch, results, "_packb", weight_of)
    spy.over(monkeypatch, results, "_unpackb", packed_weight)
    for module in (frames, reader):
        monkeypatch.setattr(module, "ormsgpack", Loader(spy))
    for module in (frames, writer, extensions):
        spy.over(monkeypatch, module, "pack", weight_of)
    spy.over(monkeypatch, canonical, "_perhaps_not_finite", searched)
    for owner, step in ((tagged, "_block"), (writer.Writer, "rewrite"), (reader.ResultReader, "_build")):
        spy.over(monkeypatch, owner, step, lambda *_: 10)  # no single call, but a step in Python, and that takes longer
    monkeypatch.setattr(aio, "YieldPoint", lambda: spy.pause)
    return spy


# A piece has at most so much, and one value more that cannot be cut.
MOST = 2 * LIGHT


@pytest.mark.mission("A4")
@pytest.mark.parametrize("what", VALUES)
async def test_a_large_result_and_its_replay(what: str, spy: Spy, tmp_path: Path) -> None:
    async def give() -> Any:
        return VALUES[what]

    async with AsyncOnce(f"sqlite:///{tmp_path}/a.db", max_result_bytes=64 * MB, compress_from=None) as once:
        await once.run("k", give)
        assert spy.pauses > (0 if isinstance(VALUES[what], bytes) else 5)  # these only have to be joined
        spy.pauses = 0
        assert await once.run("k", give) == VALUES[what]
    assert spy.pauses > 5
    assert max(spy.largest.values()) <= MOST, spy.largest
    assert spy.most_between_pauses <= 2 * MOST


@pytest.mark.mission("A4")
@pytest.mark.parametrize("what", ARGUMENTS)
async def test_a_large_argument(what: str, spy: Spy, tmp_path: Path) -> None:
    async def take(value: Any) -> None: ...

    async with AsyncOnce(f"sqlite:///{tmp_path}/a.db") as once:
        await once.run("k", take, ARGUMENTS[what])
        await once(name="all")(take)(ARGUMENTS[what])
    assert spy.pauses > 5
    assert max(spy.largest.values()) <= MOST, spy.largest
    assert spy.most_between_pauses <= 2 * MOST


def test_the_spy_sees_a_call_that_gets_everything(spy: Spy) -> None:
    """Outside of an event loop, a single large call is fine."""
    for what in PLAIN:
        spy.largest.clear()
        canonical.canonical(VALUES[what])
        assert max(spy.largest.values()) > MOST, what
    spy.largest.clear()
    results.ResultType().decode(ormsgpack.packb(VALUES["dicts"]))
    assert max(spy.largest.values()) > MOST
    assert spy.most_between_pauses > 2 * MOST


def test_a_pause_is_made_when_it_is_due_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    class Time:
        now, slept = 0.0, 0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            assert seconds > 0, "a waiting thread has to wake up first"
            self.slept += 1

    time = Time()
    monkeypatch.setattr(aio, "time", time)
    pause = aio.YieldPoint()
    for now, slept in ((0.0, 0), (0.0009, 0), (0.0011, 1), (0.0012, 1), (0.002, 1), (0.0022, 2)):
        time.now = now
        pause()
        assert time.slept == slept
