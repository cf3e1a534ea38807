"""`store_input=True`: the arguments of a call, on its record until it is done; on every store."""

from __future__ import annotations

import os
import random
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from onceward import ConfigurationError, Once, RecordState, applied, current_claim
from onceward.errors import InputNotStored, ResultCorrupt, StoreFull
from onceward.operations import Operations
from onceward.protocol.note import FRAME, INPUT
from onceward.results.encryption import AesGcm
from onceward.results.stored_input import InputCodec
from onceward.stores import MemoryStore
from onceward.testing import FakeClock
from tests.clients import AsyncClient, Backend, Mode, SyncClient, make_backend

on_every_store = pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres", "valkey"], indirect=True)


@pytest.fixture(params=["memory", *os.environ.get("ONCEWARD_TEST_BACKENDS", "").split()])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    return make_backend(request, tmp_path, clock)


class Order(Struct):
    number: int
    day: date


def kept(client: SyncClient, fn: Any, *args: Any) -> str:
    """Return what the store contains of the arguments."""
    entry = fn.read(*args)
    note: dict[str, str] = entry.record.note
    return note.get(INPUT, "")


def test_the_arguments_are_gone_when_a_person_says_that_it_was_done(client: SyncClient) -> None:
    def charge(number: int, card: str) -> str:
        raise TimeoutError

    work = client(key="charge:{number}", store_input=True, after_crash="park")(charge)
    assert work.outcome(7, "4111").kind == "parked"
    assert kept(client, work, 7, "4111") != ""
    client.resolve(work.key(7, "4111"), applied("paid"))
    assert kept(client, work, 7, "4111") == ""
    assert work.outcome(7, "4111").kind == "replayed"


@on_every_store
def test_the_arguments_are_there_with_the_claim_and_gone_with_the_completion(client: SyncClient) -> None:
    seen: list[Any] = []
    fail = [True]

    def charge(order: Order, *, cents: int = 5) -> str:
        operation = work.operation
        record = work.read(order, cents=7).record
        seen.append(operation.input.call(record.id, record.note))
        if fail:
            fail.pop()
            raise ConnectionError
        return "paid"

    work = client(key="charge:{order.number}", store_input=True)(charge)
    order = Order(7, date(2026, 1, 31))
    assert work.outcome(order, cents=7).kind == "failed"
    assert seen == [((order,), {"cents": 7})]
    assert kept(client, work, order) != "", "a failed one can be retried"
    assert work(order, cents=7) == "paid"
    entry = work.read(order)
    assert entry.state is RecordState.COMPLETED
    assert kept(client, work, order) == ""
    assert entry.note == {}


def test_without_it_nothing_is_kept(client: SyncClient) -> None:
    def fails(secret: str) -> None:
        raise ConnectionError

    work = client(key="k:{secret}")(fails)
    work.outcome("s")
    assert work.read("s").record.note.keys() == {FRAME}, "only which function raised"


def test_it_does_not_count_as_a_note_of_the_users(backend: Backend) -> None:
    with Once(backend.open(), store_input=True) as once:

        @once(key="k:{n}")
        def work(n: int, text: str) -> dict[str, str]:
            claim = current_claim()
            claim.annotate(page="x" * 4000)
            with pytest.raises(ConfigurationError, match="is reserved"):
                claim.annotate(**{"onceward:input": "mine"})
            return claim.note

        assert work(1, "t" * 10_000) == {"page": "x" * 4000}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (random.Random(1).randbytes(70_000), "70.{3} bytes, and the limit is 65536"),
        (object(), "cannot be stored"),
    ],
    ids=["large", "unencodable"],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_claimed(client: SyncClient, given: Any, why: str) -> None:
    def work(n: int, given: Any) -> None:
        raise AssertionError("it ran")

    guarded = client(key="k:{n}", store_input=True, fingerprint="none")(work)
    with pytest.raises(InputNotStored, match=why) as caught:
        guarded(1, given)
    assert caught.value.key == "k:1"
    assert guarded.read(1, given) is None


def test_the_limit_is_a_choice(client: SyncClient) -> None:
    def work(n: int, data: bytes) -> int:
        return len(data)

    guarded = client(key="k:{n}", store_input=True, max_input_bytes=100_000)(work)
    assert guarded(1, random.Random(1).randbytes(90_000)) == 90_000


@on_every_store
def test_large_input_travels_to_every_store(client: SyncClient) -> None:
    data = random.Random(2).randbytes(60_000)

    def work(n: int, data: bytes) -> None:
        raise ConnectionError

    guarded = client(key="k:{n}", store_input=True, fingerprint="none")(work)
    guarded.outcome(1, data)
    record = guarded.read(1, data).record
    assert guarded.operation.input.call(record.id, record.note) == ((1, data), {})


@on_every_store
def test_encrypted_input_is_unreadable_and_cannot_be_decrypted_for_another_key(backend: Backend, mode: Mode) -> None:
    client = (SyncClient if mode == "blocking" else AsyncClient)(backend, cipher=AesGcm({"k": b"0" * 32}, current="k"))

    def fails(n: int, card: str) -> None:
        raise ConnectionError

    work = client(key="k:{n}", store_input=True)(fails)
    work.outcome(1, "4111 1111")
    work.outcome(2, "4222 2222")
    first, second = work.read(1, "4111 1111").record, work.read(2, "4222 2222").record
    assert "4111" not in str(first.note)
    codec: InputCodec = work.operation.input
    assert codec.call(first.id, first.note) == ((1, "4111 1111"), {})
    with pytest.raises(ResultCorrupt):
        codec.call(second.id, first.note)
    with pytest.raises(ResultCorrupt):
        codec.call(first.id, {INPUT: "not base64!"})
    client.close()


def test_methods_are_refused_and_blocks_too() -> None:
    with Once(MemoryStore()) as once:
        with pytest.raises(ConfigurationError, match="is a method"):

            class Shop:
                @once(store_input=True)
                def charge(self, n: int) -> None: ...

        with pytest.raises(ConfigurationError, match="a recovery worker cannot run its body"):
            once.claim("k", store_input=True)


def test_a_table_of_operations_may_say_it() -> None:
    table = Operations(charge={"key": "charge:{n}", "store_input": True})
    with Once(MemoryStore(), operations=table) as once:

        @once.operation("charge")
        def charge(n: int) -> None:
            raise ConnectionError

        charge.outcome(1)
        entry = charge.read(1)
        assert entry is not None
        assert entry.record.note[INPUT]


def test_calls_in_bulk_store_their_input_too(client: SyncClient) -> None:
    def fails(n: int) -> int:
        if n == 2:
            raise ConnectionError
        return n

    work = client(key="k:{n}", store_input=True)(fails)
    client.map(work, [1, 2, 3])
    assert [bool(kept(client, work, n)) for n in (1, 2, 3)] == [False, True, False]


def test_a_full_store_keeps_neither_the_claim_nor_the_input() -> None:
    with Once(MemoryStore(max_records=1)) as once:

        @once(key="k:{n}", store_input=True)
        def work(n: int) -> None:
            raise ConnectionError

        work.outcome(1)
        with pytest.raises(StoreFull):
            work.outcome(2)
        assert work.read(2) is None
