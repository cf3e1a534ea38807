"""`AsyncOnce` does no long work on the thread of its event loop: it uses another thread, or many small steps.

How long the gaps really are is measured by `python -m bench --only loop`; this file shows why they are short.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import msgspec
import pytest

from onceward import AsyncOnce, Content, RecordState
from onceward.engine.engine import YIELD_EVERY
from onceward.keys import content, fingerprint, key
from onceward.keys.small import SMALL_BYTES
from onceward.results.codec import Codec
from onceward.stores import MemoryStore
from onceward.stores.sqlite.connection import SQLiteConnection
from tests.clients import TOO_LONG, Backend

MANY: list[tuple[int, str]] = [(x, str(x)) for x in range(4_000)]
"""Large, whether it is encoded, decoded or hashed."""

FILE = sys.maxsize
"""The size assumed for anything read from a disk, which may take any time."""


class SizeRecorder:
    """Records the largest value that each watched function handled, on the loop's thread and on others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._loop = threading.get_ident()  # an async test runs its loop on the thread that runs all tests
        self.on_loop: dict[str, int] = {}
        self.elsewhere: dict[str, int] = {}

    def over(self, owner: Any, name: str, size: Callable[[Any, Any], int]) -> None:
        original = getattr(owner, name)
        label = f"{owner.__name__.rpartition('.')[2]}.{name}"

        def recorded(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            seen = self.on_loop if threading.get_ident() == self._loop else self.elsewhere
            seen[label] = max(seen.get(label, 0), size(args, result))
            return result

        self._monkeypatch.setattr(owner, name, recorded)

    def heavy(self) -> set[str]:
        """Return the functions that handled something large. None of them ran on the loop's thread."""
        assert {name for name, size in self.on_loop.items() if size > SMALL_BYTES} == set()
        heavy = {name for name, size in self.elsewhere.items() if size > SMALL_BYTES}
        self.elsewhere.clear()
        return heavy


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> SizeRecorder:
    recorder = SizeRecorder(monkeypatch)
    recorder.over(Codec, "encode", lambda args, _: sys.getsizeof(args[1]))
    recorder.over(Codec, "decode", lambda args, _: len(args[1]))
    recorder.over(key, "canonical", lambda _, encoded: len(encoded))
    recorder.over(fingerprint, "canonical", lambda _, encoded: len(encoded))
    recorder.over(content, "_digest", lambda *_: FILE)
    for name in ("open", "run", "try_fetch", "close"):
        recorder.over(SQLiteConnection, name, lambda *_: FILE)
    return recorder


@contextlib.asynccontextmanager
async def opened(backend: Backend) -> AsyncIterator[AsyncOnce]:
    async with AsyncOnce(backend.open(), compress_from=None) as once:
        yield once


async def number(x: int) -> int:
    return x


async def many() -> list[tuple[int, str]]:
    return MANY


async def of_name(name: str) -> list[tuple[int, str]]:
    return MANY


# ── the store ──


@pytest.mark.mission("A4")
async def test_every_call_to_a_file_is_made_on_another_thread(tmp_path: Path, recorder: SizeRecorder) -> None:
    async with AsyncOnce(f"sqlite:///{tmp_path}/a.db") as once:
        work = once(number)
        calls: list[Callable[[], Any]] = [
            lambda: work(1),
            lambda: work(1),
            lambda: work.outcome(1),
            lambda: work.read(1),
            lambda: work.forget(1),
            lambda: once.run("k", number, 1),
            lambda: once.map(number, [2, 3]),
            lambda: once.read("no such text", name="some"),
            lambda: once.forget("k", force=True),
            once.purge,
        ]
        for call in calls:
            await call()
            assert "SQLiteConnection.run" in recorder.heavy()
        async with once.claim("k") as claim:
            assert "SQLiteConnection.run" in recorder.heavy()
            await claim.annotate(a="b")
            assert "SQLiteConnection.run" in recorder.heavy()
            await claim.complete(1)
            assert "SQLiteConnection.run" in recorder.heavy()
    assert recorder.heavy() >= {"SQLiteConnection.close"}


class OtherWriter:
    """Another process that holds the write lock of a file until `let_go` is called."""

    def __init__(self, path: Path) -> None:
        script = (
            "import sqlite3, sys\n"
            "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "c.execute('BEGIN IMMEDIATE')\n"
            "print('locked', flush=True)\n"
            "sys.stdin.readline()\n"
            "c.execute('COMMIT')\n"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "locked\n"

    def let_go(self) -> None:
        """Release the lock. May be called again."""
        if self._process.poll() is None:
            self._process.communicate("go\n", timeout=TOO_LONG)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[OtherWriter]:
    other = OtherWriter(path)
    try:
        yield other
    finally:
        other.let_go()


@pytest.mark.mission("A4")
async def test_the_loop_runs_on_while_another_process_holds_the_write_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop observes a call that waits for the lock. It could not if it had to make the call itself."""
    inside = 0
    turn = SQLiteConnection.run

    def counting(*args: Any) -> Any:
        nonlocal inside
        inside += 1
        try:
            return turn(*args)
        finally:
            inside -= 1

    async with AsyncOnce(f"sqlite:///{tmp_path}/a.db") as once:
        await once.run("warm", number, 0)
        monkeypatch.setattr(SQLiteConnection, "run", counting)
        with locked(tmp_path / "a.db") as other:
            calls = [asyncio.ensure_future(once.run(("k", x), number, x)) for x in range(20)]
            async with asyncio.timeout(TOO_LONG):
                while not inside:
                    assert not any(call.done() for call in calls)
                    await asyncio.sleep(0)
            await asyncio.to_thread(other.let_go)
            assert await asyncio.gather(*calls) == list(range(20))


# ── what we compute ──


@pytest.mark.mission("A4")
async def test_a_file_is_hashed_on_another_thread_however_small(
    backend: Backend, recorder: SizeRecorder, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"x")
    async with opened(backend) as once:

        @once(name="extract", key=Content("file"))
        async def extract(file: Path | BinaryIO) -> None: ...

        with small.open("rb") as stream:
            for file in (small, stream):
                for verb in (extract, extract.outcome, extract.read, extract.forget):
                    await verb(file)
                    assert "content._digest" in recorder.heavy()


@pytest.mark.mission("A4")
async def test_large_arguments_are_hashed_on_another_thread(backend: Backend, recorder: SizeRecorder) -> None:
    async def count(items: list[tuple[int, str]]) -> int:
        return len(items)

    async with opened(backend) as once:
        await once.run("given", count, MANY)
        assert "fingerprint.canonical" in recorder.heavy()
        of_all = once(name="all")(count)
        for verb in (of_all, of_all.outcome, of_all.read, of_all.forget):
            await verb(MANY)
            assert "key.canonical" in recorder.heavy()
        await once.map(count, [MANY], key=lambda items: items)
        assert "key.canonical" in recorder.heavy()
        await once.map(count, [MANY], key="the same for all")
        assert "fingerprint.canonical" in recorder.heavy()
        async with once.claim("block", payload=MANY):
            assert "fingerprint.canonical" in recorder.heavy()


@pytest.mark.mission("A4")
async def test_a_large_key_is_hashed_on_another_thread(backend: Backend, recorder: SizeRecorder) -> None:
    async with opened(backend) as once:
        calls: list[Callable[[], Any]] = [
            lambda: once.run(MANY, number, 1),
            lambda: once.outcome(MANY, number, 1),
            lambda: once.read(MANY),
            lambda: once.forget(MANY),
        ]
        for call in calls:
            await call()
            assert "key.canonical" in recorder.heavy()
        async with once.claim(MANY):
            assert "key.canonical" in recorder.heavy()


@pytest.mark.mission("A4")
async def test_large_results_are_encoded_and_decoded_on_another_thread(
    backend: Backend, recorder: SizeRecorder
) -> None:
    async with opened(backend) as once:
        await once.run("large", many)
        assert "Codec.encode" in recorder.heavy()
        assert await once.run("large", many) == MANY
        assert "Codec.decode" in recorder.heavy()
        twice = await once.map(of_name, ["same", "same"], key="{name}")
        assert twice[1].value == MANY
        assert {"Codec.encode", "Codec.decode"} <= recorder.heavy()
        async with once.claim("block") as claim:
            await claim.complete(MANY)
            assert "Codec.encode" in recorder.heavy()


class Part(msgspec.Struct):
    """Records on which threads its instances are read (to hash or encode them) and rebuilt."""

    number: int
    read_in: ClassVar[set[int]] = set()
    rebuilt_in: ClassVar[set[int]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name == "number":
            Part.read_in.add(threading.get_ident())
        return super().__getattribute__(name)

    def __post_init__(self) -> None:
        Part.rebuilt_in.add(threading.get_ident())


async def threads_that_use_parts(once: AsyncOnce) -> list[set[int]]:
    """Return the threads that hashed a large argument, that encoded a large result, and that decoded it."""
    parts = [Part(number) for number in range(1_000)]

    async def take(parts: list[Part]) -> None: ...

    async def give() -> list[Part]:
        return parts

    found = []
    for call, seen in (
        (lambda: once.run("argument", take, parts), Part.read_in),
        (lambda: once.run("result", give), Part.read_in),
        (lambda: once.run("result", give), Part.rebuilt_in),
    ):
        seen.clear()
        await call()
        found.append({*seen})
    return found


@pytest.mark.mission("A4")
async def test_the_classes_of_large_values_run_on_another_thread(backend: Backend) -> None:
    loop = threading.get_ident()
    async with opened(backend) as once:
        for threads in await threads_that_use_parts(once):
            assert threads
            assert loop not in threads


async def test_without_a_worker_thread_the_classes_of_large_values_run_on_the_loop(backend: Backend) -> None:
    """Shows that the test above notices a missing worker thread."""

    async def on_the_loop(call: Any, *arguments: Any) -> Any:
        return call(*arguments)

    async with opened(backend) as once:
        once.engine.runtime.compute = on_the_loop  # type: ignore[method-assign]
        assert await threads_that_use_parts(once) == [{threading.get_ident()}] * 3


@pytest.mark.mission("A4")
async def test_what_was_stored_compressed_counts_by_the_size_that_it_unpacks_to(
    backend: Backend, recorder: SizeRecorder
) -> None:
    async def zeros() -> bytes:
        return bytes(1_000_000)

    recorder.over(Codec, "decode", lambda _, value: len(value))
    async with AsyncOnce(backend.open()) as once:
        await once.run("zeros", zeros)
        assert await once.run("zeros", zeros) == bytes(1_000_000)
    assert {"Codec.encode", "Codec.decode"} <= recorder.heavy()


@pytest.mark.mission("A4")
async def test_a_result_over_the_limit_is_found_out_on_another_thread(backend: Backend, recorder: SizeRecorder) -> None:
    async with opened(backend) as once:
        assert await once.using(max_result_bytes=1000).run("over", many) == MANY
        assert "Codec.encode" in recorder.heavy()
        entry = await once.read("over")
        assert entry is not None
        assert not entry.stored


@pytest.mark.fault("F3")
async def test_a_result_is_recorded_though_its_caller_is_cancelled_while_it_is_encoded(backend: Backend) -> None:
    async with opened(backend) as once:
        computing = asyncio.Event()
        compute = once.engine.runtime.compute

        async def signalling(call: Any, *arguments: Any) -> Any:
            computing.set()
            return await compute(call, *arguments)

        once.engine.runtime.compute = signalling  # type: ignore[method-assign]
        call = asyncio.create_task(once.run("k", many))
        await computing.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        entry = await once.read("k")
        assert entry is not None
        assert entry.record.state is RecordState.COMPLETED


async def test_a_small_call_needs_no_other_thread() -> None:
    once = AsyncOnce(MemoryStore())
    once.engine.runtime.compute = None  # type: ignore[assignment,method-assign]
    order = {
        "id": 7,
        "lines": [{"sku": "a", "price": Decimal("1.50")}] * 5,
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    }

    async def echo(order: dict[str, object]) -> dict[str, object]:
        return order

    for _ in range(2):
        assert await once.run("k", echo, order) == order
        assert await once(name="echo")(echo)(order) == order
    async with once.claim("block", payload=order):
        pass


# ── many small steps ──


class Turns:
    """Counts the iterations of the loop, and the steps in each."""

    def __init__(self) -> None:
        self._turn = 0
        self.done: Counter[int] = Counter()

    def step(self) -> None:
        self.done[self._turn] += 1

    def most_in_a_turn(self) -> int:
        most = max(self.done.values())
        self.done.clear()
        return most

    async def count(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.count())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()


THOUSANDS = 3_000
A_FEW = 2 * YIELD_EVERY  # two loops of steps may run in one iteration, each with its own pauses


@pytest.mark.mission("A4")
async def test_a_map_of_thousands_does_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a store that never waits, so that only our own pauses let other tasks run."""
    once, turns = AsyncOnce(MemoryStore()), Turns()

    def items() -> Iterable[int]:
        for x in range(THOUSANDS):
            turns.step()
            yield x

    async def work(x: int) -> int:
        turns.step()
        return x

    decode = Codec.decode

    def stepping(*args: Any) -> Any:
        turns.step()
        return decode(*args)

    async with turns:
        await once.map(number, items(), key="items:{x}")
        assert turns.most_in_a_turn() <= A_FEW, "while the keys are made"
        await once.map(work, range(THOUSANDS), key="work:{x}")
        assert turns.most_in_a_turn() <= A_FEW, "while the work is done"
        monkeypatch.setattr(Codec, "decode", stepping)
        await once.map(work, range(THOUSANDS), key="work:{x}")
        assert turns.most_in_a_turn() <= A_FEW, "while it is replayed"
        await once.map(number, [1] * THOUSANDS, key="same:{x}")
        assert turns.most_in_a_turn() <= A_FEW, "while the same key comes again and again"
