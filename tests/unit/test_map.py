"""`once.map`: claimed in bulk, outcomes in the order of the input, one that fails stops no other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from onceward import (
    AsyncOnce,
    ConfigurationError,
    InvalidKey,
    MissingKey,
    Once,
    PayloadMismatch,
    RecordState,
    StoreUnavailable,
)
from onceward.errors import Reentrant, VersionSkew
from onceward.protocol.ports import Filter
from onceward.protocol.record import READER
from onceward.protocol.requests import Answer, ClaimRequest
from onceward.stores import MemoryStore
from onceward.testing import FakeClock
from tests.clients import Backend, SyncClient
from tests.raw_memory import overwrite
from tests.unit.other_worker import owned


@pytest.fixture
def backend(tmp_path: Path, clock: FakeClock) -> Backend:
    """Memory is enough here: nothing in this file depends on the store."""
    return Backend("memory", tmp_path, clock)


class Handler:
    """Records the items that it handled; raises for the items in `refuse`."""

    def __init__(self, **refuse: BaseException) -> None:
        self.done: list[Any] = []
        self.refuse = refuse

    def __call__(self, item: Any) -> str | None:  # None is what another worker's block leaves
        self.done.append(item)
        if str(item) in self.refuse:
            raise self.refuse[str(item)]
        return f"did {item}"


def mapped(client: SyncClient, handler: Handler, items: Any, **settings: Any) -> list[Any]:
    def work(item: Any) -> str | None:
        return handler(item)

    return client.map(work, items, **settings)


def test_outcomes_come_in_the_order_of_the_input(client: SyncClient) -> None:
    handler = Handler()
    assert mapped(client, handler, ["b"])[0].executed
    outcomes = mapped(client, handler, ["c", "b", "a"])
    assert [(one.kind, one.value) for one in outcomes] == [
        ("executed", "did c"),
        ("replayed", "did b"),
        ("executed", "did a"),
    ]
    assert handler.done == ["b", "c", "a"]


def test_a_second_map_replays_everything(client: SyncClient) -> None:
    handler = Handler()
    first, second = (mapped(client, handler, [1, 2, 3], key="n:{item}") for _ in range(2))
    assert [one.kind for one in first] == ["executed"] * 3
    assert [(one.kind, one.value, one.key) for one in second] == [
        ("replayed", "did 1", "n:1"),
        ("replayed", "did 2", "n:2"),
        ("replayed", "did 3", "n:3"),
    ]
    assert handler.done == [1, 2, 3]


def test_one_that_fails_stops_no_other(client: SyncClient) -> None:
    handler = Handler(b=ValueError("bad b"))
    outcomes = mapped(client, handler, ["a", "b", "c"], key="{item}")
    assert [one.kind for one in outcomes] == ["executed", "failed", "executed"]
    with pytest.raises(ValueError, match="bad b"):
        outcomes[1].unwrap()
    handler.refuse.clear()
    assert [(one.kind, one.attempt) for one in mapped(client, handler, ["a", "b"], key="{item}")] == [
        ("replayed", 1),
        ("executed", 2),
    ]


def test_a_key_that_comes_twice_runs_once(client: SyncClient) -> None:
    handler = Handler()
    outcomes = mapped(client, handler, ["a", "b", "a", "a"])
    assert [one.kind for one in outcomes] == ["executed", "executed", "replayed", "replayed"]
    assert [one.value for one in outcomes] == ["did a", "did b", "did a", "did a"]
    assert outcomes[0].token == outcomes[2].token
    assert handler.done == ["a", "b"]
    assert [event.reason for event in client.events_named("skipped")] == ["replayed"] * 2


def test_a_key_that_comes_twice_and_fails_runs_once_too(client: SyncClient) -> None:
    handler = Handler(a=ValueError("bad"))
    assert [one.kind for one in mapped(client, handler, ["a", "a"])] == ["failed", "failed"]
    assert handler.done == ["a"]


@pytest.mark.rival(5)
def test_the_same_key_with_another_payload_is_a_mismatch_inside_one_batch_too(client: SyncClient) -> None:
    handler = Handler()
    outcomes = mapped(client, handler, [("k", 1), ("k", 2), ("k", 1)], key="{item[0]}")
    assert [one.kind for one in outcomes] == ["executed", "mismatch", "replayed"]
    with pytest.raises(PayloadMismatch, match="differs in: item"):
        outcomes[1].unwrap()
    assert handler.done == [("k", 1)]
    again = mapped(client, handler, [("k", 2), ("k", 1)], key="{item[0]}")
    assert [one.kind for one in again] == ["mismatch", "replayed"]


@pytest.mark.rival(30)
def test_items_without_a_key_each_run_if_that_is_declared(client: SyncClient) -> None:
    handler = Handler()
    with pytest.raises(MissingKey):
        mapped(client, handler, [{}], key="{item[id]}")[0].unwrap()
    outcomes = mapped(client, handler, [{"id": 1}, {}, {}], key="{item[id]}", on_missing_key="run")
    assert [(one.kind, one.reason) for one in outcomes] == [("executed", "executed")] + [
        ("executed", "unprotected")
    ] * 2
    assert handler.done == [{"id": 1}, {}, {}]
    assert len(client.events_named("unprotected")) == 2


def test_more_than_one_batch_and_a_generator(client: SyncClient) -> None:
    handler = Handler()
    outcomes = mapped(client, handler, (number for number in range(600)))
    assert [one.value for one in outcomes] == [f"did {number}" for number in range(600)]
    assert {one.kind for one in outcomes} == {"executed"}
    assert handler.done == list(range(600))
    assert client.heartbeat.shortest_lease() is None  # no lease is active


def test_no_store_call_has_more_than_256_keys() -> None:
    class Counting(MemoryStore):
        batches: ClassVar[list[int]] = []

        async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
            self.batches.append(len(requests))
            return await super().claim(requests, timeout=timeout)

    with Once(Counting()) as once:
        once.map(str, range(600), name="n")
    assert Counting.batches == [256, 256, 88]


def test_nothing_in_nothing_out(client: SyncClient) -> None:
    assert mapped(client, Handler(), []) == []


def test_a_key_that_another_worker_is_processing_follows_the_policy(client: SyncClient) -> None:
    handler = Handler()
    with owned(client, client.once.key("a", name="n")):
        outcomes = mapped(client, handler, ["a", "b"], key="{item}", name="n", on_running="skip")
        assert [one.kind for one in outcomes] == ["running", "executed"]
        waited = client.start(lambda: mapped(client, handler, ["a", "c"], key="{item}", name="n"))
        while "c" not in handler.done:
            pass  # the free one is done before it waits for the other
    assert [one.kind for one in waited.result(60)] == ["replayed", "executed"]
    assert handler.done == ["b", "c"]


def test_the_choices_of_a_decorated_function_hold(client: SyncClient) -> None:
    effects: list[int] = []

    @client(key="n:{x}", max_attempts=1)
    def work(x: int, y: int = 5) -> int:
        effects.append(x)
        return x + y

    assert work(2) == 7
    assert [(one.key, one.value) for one in client.map(work, [1, 2])] == [("n:1", 6), ("n:2", 7)]
    assert effects == [2, 1]
    for details in ({"key": "{x}"}, {"name": "other"}, {"lease": "1m"}):
        with pytest.raises(ConfigurationError, match="already decorated"):
            client.map(work, [1], **details)


def test_a_decorated_method_keeps_its_receiver(client: SyncClient) -> None:
    class Till:
        def __init__(self) -> None:
            self.taken: list[int] = []

        def take(self, order: int) -> int:
            self.taken.append(order)
            return order

        once = client.once(key="t:{order}")(client.work(take))

    till = Till()
    assert [one.value for one in client.wait(client.once.map(till.once, [1, 2, 1]))] == [1, 2, 1]
    assert till.taken == [1, 2]


def test_functions_of_the_other_client_kind_are_refused_before_anything_runs() -> None:
    async def work(x: int) -> int:
        return x

    once = Once(MemoryStore())
    for fn in (work, once(work)):
        with pytest.raises(ConfigurationError, match="AsyncOnce"):
            once.map(fn, [1])


async def test_async_map_takes_no_blocking_function_that_is_decorated() -> None:
    def work(x: int) -> int:
        return x

    async with AsyncOnce(MemoryStore()) as once:
        with pytest.raises(ConfigurationError, match="with Once"):
            await once.map(Once(MemoryStore())(work), [1])  # type: ignore[arg-type]  # that is the point


@pytest.mark.rival(7)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_items_not_begun_are_released_when_the_process_stops(client: SyncClient, error: BaseException) -> None:
    handler = Handler(b=error)
    with pytest.raises(type(error)):
        mapped(client, handler, ["a", "b", "c", "d"], key="{item}", name="n")
    assert handler.done == ["a", "b"]
    states = [client.read(key, name="n") for key in "abcd"]
    assert [one and one.state for one in states] == [RecordState.COMPLETED, RecordState.FAILED, None, None]
    assert client.heartbeat.shortest_lease() is None  # no lease is active
    handler.refuse.clear()
    again = mapped(client.another(), handler, ["a", "b", "c", "d"], key="{item}", name="n", on_running="raise")
    assert [(one.kind, one.attempt) for one in again] == [
        ("replayed", 1),
        ("executed", 2),
        ("executed", 1),  # not begun is not an attempt
        ("executed", 1),
    ]


class Unreadable:
    """A key that cannot be made."""


@pytest.mark.parametrize(
    ("bad", "error"), [(float("nan"), InvalidKey), (Unreadable(), InvalidKey), ({"no": "id"}, MissingKey)]
)
def test_an_item_whose_key_cannot_be_made_stops_no_other(client: SyncClient, bad: Any, error: type[Exception]) -> None:
    handler = Handler()
    source = "{item[id]}" if error is MissingKey else None
    outcomes = mapped(client, handler, [{"id": 1}, bad, {"id": 2}], key=source)
    assert [one.kind for one in outcomes] == ["executed", "failed", "executed"]
    with pytest.raises(error):
        outcomes[1].unwrap()
    assert handler.done == [{"id": 1}, {"id": 2}]


def test_a_key_function_that_raises_is_the_trouble_of_its_item(client: SyncClient) -> None:
    handler = Handler()
    outcomes = mapped(client, handler, [1, 0, 2], key=lambda item: 1 / item)
    assert [one.kind for one in outcomes] == ["executed", "failed", "executed"]
    with pytest.raises(ZeroDivisionError):
        outcomes[1].unwrap()


def test_an_item_claimed_by_the_caller_of_the_batch_stops_no_other(client: SyncClient) -> None:
    handler = Handler()
    with client.claim("b", name="n"):
        outcomes = mapped(client, handler, ["a", "b", "c"], key="{item}", name="n")
    assert [one.kind for one in outcomes] == ["executed", "failed", "executed"]
    with pytest.raises(Reentrant):
        outcomes[1].unwrap()


def test_a_record_of_a_newer_version_stops_no_other(client: SyncClient) -> None:
    handler = Handler()
    mapped(client, handler, ["b"], key="{item}", name="n")
    store = client.once.store
    [record] = client.drive(store.scan(Filter(), cursor=None, limit=10, timeout=5)).records
    overwrite(store, record.id, min_reader=READER + 1)
    outcomes = mapped(client, handler, ["a", "b", "c"], key="{item}", name="n")
    assert [one.kind for one in outcomes] == ["executed", "failed", "executed"]
    with pytest.raises(VersionSkew):
        outcomes[1].unwrap()


def test_a_duplicate_gets_a_value_of_its_own(client: SyncClient) -> None:
    def work(item: int) -> list[int]:
        return [item]

    first, second, third = client.map(work, [1, 1, 1])
    first.value.append(2)
    second.value.append(3)
    assert third.value == [1]


def test_a_lambda_needs_a_name(client: SyncClient) -> None:
    with pytest.raises(ConfigurationError, match="name="):
        client.map(lambda item: item, [1])
    assert client.map(lambda item: item, [1], name="n")[0].value == 1


def test_a_key_that_an_outer_call_holds_fails_alone_although_the_store_is_down() -> None:
    class Down(MemoryStore):
        """Answers no claim while `down` is set."""

        down = False

        async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
            if self.down:
                raise StoreUnavailable("down, as the test wants it")
            return await super().claim(requests, timeout=timeout)

    store = Down()
    once = Once(store)

    @once(key="{number}", on_store_down="run")
    def work(number: int) -> list[str]:
        if number > 1:
            return []
        store.down = True
        return [one.kind for one in once.map(work, [1, 2])]

    assert work(1) == ["failed", "executed"]
