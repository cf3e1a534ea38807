"""Results that are unusual, too large, damaged or changed in the database: the effect stays completed."""

from __future__ import annotations

import dataclasses
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from onceward import AlreadyDone, ConfigurationError, Executed, Failed, PreviouslyFailed, RecordState, Replayed
from onceward.errors import ResultCorrupt, ResultNotStored, UnknownCodec
from tests.clients import SyncClient
from tests.raw_memory import overwrite


class Counted:
    """A handler that counts its calls. Named like a function, so that its keys have a scope."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.calls = 0
        self.__name__ = self.__qualname__ = "counted"

    def __call__(self) -> Any:
        self.calls += 1
        return self._make()


def overwrite_result(client: SyncClient, id: bytes, change: Callable[[bytes], bytes]) -> None:
    """Damage the stored bytes directly in the database."""
    if client.backend.kind == "memory":
        store = client.backend.open()
        [stored] = client.drive(store.read([id], timeout=5))
        overwrite(store, id, result=change(stored.record.result))
        return
    if client.backend.kind != "sqlite":
        pytest.skip("every store keeps a result as bytes; two stores are enough")
    with closing(sqlite3.connect(client.backend.path)) as connection, connection:
        (before,) = connection.execute("SELECT result FROM onceward_records WHERE id = ?", (id,)).fetchone()
        connection.execute("UPDATE onceward_records SET result = ? WHERE id = ?", (change(before), id))


@pytest.mark.fault("F20")
@pytest.mark.rival(19)
@pytest.mark.parametrize("value", [None, 0, 0.0, "", b"", [], (), {}, False], ids=repr)
def test_a_result_that_is_empty_is_replayed_like_any_other(client: SyncClient, value: Any) -> None:
    fn = Counted(lambda: value)
    first, second = client.outcome("order 7", fn), client.outcome("order 7", fn)
    assert isinstance(first, Executed)
    assert isinstance(second, Replayed)
    assert second.stored
    assert (second.value, type(second.value)) == (value, type(value))
    assert fn.calls == 1


class Unencodable:
    pass


class Unbound:
    """Like a lazy proxy that has lost its target: every inspection raises an error."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # it is not meant to be useful
        raise RuntimeError("nothing is bound here any more")


async def _coroutine() -> int:
    return 1


@pytest.mark.fault("F21")
@pytest.mark.parametrize(
    "make",
    [
        Unencodable,
        lambda: (number for number in range(3)),
        _coroutine,
        lambda: [1, object()],
        lambda: print,
        Unbound,
        lambda: {"in": [Unbound()]},
    ],
    ids=["object", "generator", "coroutine", "nested", "function", "not inspectable", "container of it"],
)
def test_work_whose_result_cannot_be_stored_is_completed_and_never_run_again(
    client: SyncClient, make: Callable[[], Any]
) -> None:
    fn = Counted(make)
    if make is _coroutine and client.mode == "blocking":
        with pytest.raises(ConfigurationError, match="coroutine"):  # not started: sync code cannot await it
            client.run("order 7", fn)
        return
    first = client.outcome("order 7", fn)
    assert isinstance(first, Executed), "the caller of the effect gets its result"
    getattr(first.value, "close", int)()  # a coroutine that is never awaited would warn
    second = client.outcome("order 7", fn)
    assert isinstance(second, Replayed)
    assert not second.stored
    with pytest.raises(ResultNotStored):
        client.run("order 7", fn)
    assert fn.calls == 1
    assert len(client.events_named("result_not_stored")) == 1
    entry = client.read("order 7")
    assert (entry.state, entry.stored) == (RecordState.COMPLETED, False)


@pytest.mark.fault("F22")
def test_a_result_over_the_limit_is_left_out_before_the_write(client: SyncClient) -> None:
    limited = client.another(max_result_bytes=1000, compress_from=None)
    fn = Counted(lambda: "x" * 2000)
    assert limited.run("order 7", fn) == "x" * 2000
    second = limited.outcome("order 7", fn)
    assert (second.kind, second.stored, fn.calls) == ("replayed", False, 1)
    assert "the limit is 1000" in limited.events_named("result_not_stored")[0].reason


@pytest.mark.fault("F22")
def test_the_limit_counts_before_compression_so_that_a_replay_decodes_no_more(client: SyncClient) -> None:
    limited = client.another(max_result_bytes=1000, compress_from=100)
    fitting, large = Counted(lambda: "x" * 900), Counted(lambda: "x" * 2000)
    limited.run("order 7", fitting)
    assert limited.run("order 7", fitting) == "x" * 900
    limited.run("order 8", large)
    assert not limited.outcome("order 8", large).stored, "although it compresses to less than 100 bytes"
    assert (fitting.calls, large.calls) == (1, 1)


@pytest.mark.fault("F22", "F21")
def test_with_store_result_false_a_replay_returns_none_without_a_warning(client: SyncClient) -> None:
    quiet = client.another(store_result=False)
    fn = Counted(Unencodable)
    quiet.run("order 7", fn)
    assert quiet.run("order 7", fn) is None
    assert fn.calls == 1
    assert quiet.events_named("result_not_stored") == []


@pytest.mark.fault("F23")
@pytest.mark.rival(1)
def test_a_retryable_failure_is_kept_and_due_after_its_delay(client: SyncClient) -> None:
    patient = client.another(retry_delay="10m")
    down = iter([True, False])

    def make() -> str:
        if next(down):
            raise ConnectionError("no route")
        return "sent"

    fn = Counted(make)
    with pytest.raises(ConnectionError, match="no route"):
        patient.run("order 7", fn)
    entry = patient.read("order 7")
    assert (entry.state, entry.attempt, entry.error) == (RecordState.FAILED, 1, "ConnectionError: no route")
    with pytest.raises(PreviouslyFailed) as early:
        patient.run("order 7", fn)
    assert early.value.error_type == "ConnectionError"
    assert early.value.retry_after == pytest.approx(600)
    assert fn.calls == 1
    patient.clock.advance("10m")
    outcome = patient.outcome("order 7", fn)
    assert (outcome.kind, outcome.value, outcome.attempt) == ("executed", "sent", 2)


@pytest.mark.fault("F23")
def test_a_final_failure_replays_as_a_typed_error_and_never_runs_again(client: SyncClient) -> None:
    strict = client.another(final=ValueError)

    def make() -> None:
        raise ValueError("no such order")

    fn = Counted(make)
    first = strict.outcome("order 7", fn)
    assert isinstance(first, Failed)
    assert (first.final, type(first.exception)) == (True, ValueError)
    second = strict.outcome("order 7", fn)
    assert isinstance(second, Failed)
    assert (second.final, second.exception) == (True, None)
    with pytest.raises(PreviouslyFailed, match="ValueError: no such order") as again:
        strict.run("order 7", fn)
    assert again.value.retry_after is None
    assert again.value.error_message == "no such order"
    assert fn.calls == 1


@pytest.mark.fault("F23")
def test_attempts_that_run_out_make_the_failure_final(client: SyncClient) -> None:
    limited = client.another(max_attempts=2)

    def make() -> None:
        raise ConnectionError("no route")

    fn = Counted(make)
    assert not limited.outcome("order 7", fn).final
    assert limited.outcome("order 7", fn).final
    assert limited.outcome("order 7", fn).exception is None
    assert fn.calls == 2


@pytest.mark.fault("F23")
@pytest.mark.parametrize("error", [StopIteration("over"), StopAsyncIteration("over")], ids=repr)
def test_exceptions_with_a_special_meaning_in_python_reach_the_caller_unchanged(
    client: SyncClient, error: Exception
) -> None:
    if client.mode == "async" and isinstance(error, StopIteration):
        pytest.skip("Python itself does not let StopIteration out of a coroutine")

    def make() -> None:
        raise error

    with pytest.raises(type(error), match="over"):
        client.run("order 7", Counted(make))


@pytest.mark.fault("F24")
def test_a_caller_that_edits_its_result_does_not_edit_the_replay(client: SyncClient) -> None:
    fn = Counted(lambda: {"lines": [1, 2]})
    first = client.run("order 7", fn)
    first["lines"].append("edited")
    second = client.run("order 7", fn)
    assert second == {"lines": [1, 2]}
    second["lines"].clear()
    assert client.run("order 7", fn) == {"lines": [1, 2]}


@pytest.mark.fault("F24")
def test_a_result_edited_in_front_of_a_cache_does_not_edit_the_replay_either(client: SyncClient) -> None:
    cached = client.another(cache=10)
    fn = Counted(lambda: {"lines": [1, 2]})
    cached.run("order 7", fn)["lines"].append("edited")
    cached.run("order 7", fn)["lines"].append("edited")
    assert cached.run("order 7", fn) == {"lines": [1, 2]}


def flip_last(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.fault("F25")
@pytest.mark.parametrize(
    "damage",
    [flip_last, lambda data: data[:-1], lambda data: data[:5], lambda _data: b"", lambda data: data + b"\0"],
    ids=["flipped bit", "one byte short", "cut in the header", "empty", "one byte more"],
)
def test_a_damaged_result_is_an_error_and_never_a_reason_to_run_again(
    client: SyncClient, damage: Callable[[bytes], bytes]
) -> None:
    fn = Counted(lambda: {"total": 12})
    client.run("order 7", fn)
    before = client.read("order 7").record
    overwrite_result(client, before.id, damage)
    for _ in range(2):
        with pytest.raises(ResultCorrupt, match=r"\[key order 7\]"):
            client.run("order 7", fn)
    assert fn.calls == 1
    after = client.read("order 7").record
    assert (after.state, after.token, after.attempt) == (RecordState.COMPLETED, before.token, 1)


@pytest.mark.fault("F25")
def test_one_damaged_result_in_a_batch_stops_no_other(client: SyncClient) -> None:
    runs: list[int] = []

    def double(item: int) -> int:
        runs.append(item)
        return item * 2

    guarded = client(double)
    guarded(2)
    overwrite_result(client, guarded.key(2).id, flip_last)
    outcomes = client.map(guarded, [1, 2, 3])
    assert [outcome.kind for outcome in outcomes] == ["executed", "failed", "executed"]
    with pytest.raises(ResultCorrupt):
        outcomes[1].unwrap()
    assert sorted(runs) == [1, 2, 3]


@pytest.mark.fault("F26")
@pytest.mark.parametrize("byte", [0, 1, 2], ids=["codec", "version", "flags"])
def test_a_result_of_an_unknown_codec_raises_and_never_runs_again(client: SyncClient, byte: int) -> None:
    fn = Counted(lambda: {"total": 12})
    client.run("order 7", fn)
    id = client.read("order 7").record.id
    overwrite_result(client, id, lambda data: data[:byte] + b"\x7f" + data[byte + 1 :])
    with pytest.raises(UnknownCodec):
        client.run("order 7", fn)
    assert fn.calls == 1
    assert client.read("order 7").state is RecordState.COMPLETED


@dataclasses.dataclass
class Receipt:
    number: int


@pytest.mark.fault("F21")
@pytest.mark.parametrize(
    ("make", "reason", "fix"),
    [
        (lambda: Receipt(1), "Receipt is not named in the return annotation", "annotate the function"),
        (lambda: "x" * 100, "it takes 109 bytes, and the limit is 100", "increase max_result_bytes"),
        (lambda: {"secret": object()}, "builtins:object is not a type that can be stored", "store_result=False"),
    ],
    ids=["not annotated", "too large", "not storable"],
)
def test_every_later_caller_learns_why_a_result_was_not_stored(
    client: SyncClient, make: Callable[[], Any], reason: str, fix: str
) -> None:
    """The log of the first call may be gone, or on another machine."""
    fn = Counted(make)
    first = client.another(max_result_bytes=100)
    first.run("order 7", fn)
    with pytest.raises(ResultNotStored) as missed:
        client.another(max_result_bytes=100).run("order 7", fn)
    assert reason in str(missed.value)
    assert fix in str(missed.value)
    entry = client.read("order 7")
    assert (reason in entry.unstored, entry.note) == (True, {})
    [event] = first.events_named("result_not_stored")
    for text in (entry.unstored, event.reason):
        assert "secret" not in text, "keys of a dict are the user's own data"
    with pytest.raises(AlreadyDone, match=re.escape(reason)), client.claim("order 7"):
        pytest.fail("entered")
    assert fn.calls == 1
