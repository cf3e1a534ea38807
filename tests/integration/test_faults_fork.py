"""Processes that fork, spawn and pickle."""

from __future__ import annotations

import asyncio
import pickle
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from onceward import AlreadyRunning, AsyncOnce, LeaseLost, Once, Outcome, RecordState
from onceward.errors import StoreBroken
from onceward.observe import Event
from onceward.stores import MemoryStore
from onceward.stores.sqlite import SQLiteStore
from tests.cli.calls import until
from tests.clients import TOO_LONG, Backend
from tests.heartbeats import heartbeat_threads
from tests.integration.processes import elsewhere, in_a_forked_child, work


@pytest.mark.fault("F34")
def test_a_forked_child_owns_nothing_of_its_parent(backend: Backend) -> None:
    once = Once(backend.open(), lease="2s")
    reported: list[str] = []
    with once.claim("order 7") as claim:

        def child() -> None:
            assert not once.heartbeat.held()
            with pytest.raises(LeaseLost, match="parent"):
                claim.check()
            with pytest.raises(LeaseLost, match="parent"):
                claim.complete("stolen")
            if backend.kind == "memory":  # a child cannot share it
                return
            with once.claim("order 8"):
                assert len(heartbeat_threads()) == 1, "it renews its own leases in its own thread"

        in_a_forked_child(child)
        once.subscribe(lambda event: reported.append(event.name))
        until(lambda: reported.count("renewed") > 1)
        claim.check()
        claim.complete("mine")
    entry = once.read("order 7")
    assert entry is not None
    assert entry.value == "mine"
    once.close()


@pytest.mark.fault("F34")
def test_leaving_the_block_in_a_forked_child_does_not_settle_the_parents_claim(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    once = Once(SQLiteStore(path))
    block = once.claim("order 7")
    block.__enter__()

    def child() -> None:
        with pytest.raises(LeaseLost, match="parent"):
            block.__exit__(None, None, None)

    in_a_forked_child(child)
    entry = once.read("order 7")
    assert entry is not None
    assert entry.state is RecordState.PENDING
    block.__exit__(None, None, None)
    once.close()


@pytest.mark.fault("F34")
def test_a_forked_child_works_with_the_client_it_inherited_and_has_its_own_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    once = Once(SQLiteStore(path), lease="2s")
    once.run("before the fork", work)
    parents_claim = elsewhere(once.claim("held by the parent").__enter__)

    def child() -> None:
        reported: list[Event] = []
        once.subscribe(reported.append)
        assert once.outcome("before the fork", work).replayed
        with once.using(on_running="raise").claim("of the child") as claim:
            until(lambda: "of the child" in [event.key for event in reported if event.name == "renewed"])
            claim.check()
        with pytest.raises(AlreadyRunning), once.claim("held by the parent", on_running="raise"):
            pass

    in_a_forked_child(child)
    parents_claim.complete("still mine")
    owner = [once.read(key) for key in ("of the child", "held by the parent")]
    assert [entry.state for entry in owner if entry] == [RecordState.COMPLETED] * 2
    assert {entry.owner for entry in owner if entry} != {owner[1].owner if owner[1] else ""}
    once.close(timeout=0)


@pytest.mark.fault("F34")
def test_the_nonces_of_parent_and_child_never_meet(tmp_path: Path) -> None:
    seen = tmp_path / "nonces"
    once = Once("memory://")
    once.engine.runtime.nonce()

    def child() -> None:
        seen.write_bytes(b"".join(once.engine.runtime.nonce() for _ in range(100)))

    in_a_forked_child(child)
    raw = seen.read_bytes()
    theirs = {raw[start : start + 16] for start in range(0, len(raw), 16)}
    assert len(theirs) == 100
    assert not theirs & {once.engine.runtime.nonce() for _ in range(200)}


@pytest.mark.fault("F34")
def test_a_memory_store_raises_in_a_forked_child() -> None:
    once = Once("memory://")
    once.run("order 7", work)

    def child() -> None:
        with pytest.raises(StoreBroken, match="fork"):
            once.run("order 8", work)

    in_a_forked_child(child)
    once.close()


@pytest.mark.fault("F34")
def test_an_async_client_still_works_in_a_forked_child(tmp_path: Path) -> None:
    once = AsyncOnce(SQLiteStore(tmp_path / "once.db"))
    asyncio.run(once.run("before the fork", async_work))

    def child() -> None:
        async def both() -> list[str]:
            return [(await once.outcome(key, async_work)).kind for key in ("before the fork", "after the fork")]

        assert asyncio.run(both()) == ["replayed", "executed"]

    in_a_forked_child(child)

    async def look_and_close() -> str:
        try:
            return (await once.outcome("after the fork", async_work)).kind
        finally:
            await once.close()

    assert asyncio.run(look_and_close()) == "replayed"


async def async_work() -> str:
    return "done"


def in_a_spawned_child(client: Once, key: str, answers: Any) -> None:
    outcome: Outcome[str] = client.outcome(key, work)
    answers.put((outcome.kind, outcome.value, client.policy.lease, client.key(key).scope.text))
    client.close()


@pytest.mark.fault("F34")
def test_a_pickled_client_works_in_a_spawned_process_with_the_same_keys_and_choices(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path / 'once.db'}", app="billing", tenant="acme", lease="7s")
    once.run("order 7", work)
    context = get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=in_a_spawned_child, args=(once, "order 7", answers))
    child.start()
    kind, value, lease, scope = answers.get(timeout=2 * TOO_LONG)  # on a busy machine, imports take long
    child.join(TOO_LONG)
    assert (kind, value, lease) == ("replayed", "done", 7_000_000)
    assert scope == once.key("order 7").scope.text
    assert child.exitcode == 0
    once.close()


@pytest.mark.fault("F34")
@pytest.mark.parametrize("client_type", [Once, AsyncOnce])
def test_a_client_on_a_store_object_says_why_it_cannot_be_pickled(client_type: Any) -> None:
    with pytest.raises(TypeError, match="create it from a URL"):
        pickle.dumps(client_type(MemoryStore()))
