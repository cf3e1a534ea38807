"""Bugs of other libraries with stores: lost replies, purged fencing tokens, fork, and size."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward import AlreadyRunning, Executed, LeaseLost, Once
from onceward.errors import StoreBroken
from onceward.keys.key import Scope, make_key
from onceward.protocol.ports import Store
from onceward.protocol.requests import ClaimRequest, Complete, Verdict
from onceward.runtime.threads import run
from onceward.testing.clock import FakeClock
from tests.clients import Backend, SyncClient


def work_noted_in(ran: list[str]) -> Callable[[], str]:
    def work() -> str:
        ran.append("ran")
        return "done"

    return work


# ── 20: the reply is lost ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(20)
@pytest.mark.parametrize("lost", [1, 2])
def test_our_own_claim_whose_reply_was_lost_is_not_mistaken_for_another_owners(client: SyncClient, lost: int) -> None:
    ran: list[str] = []
    client.read("opens the store")
    with client.store_trouble("claim", times=lost, applied=True) as failed:
        outcome = client.outcome("k", work_noted_in(ran))
    assert len(failed) == lost
    assert (type(outcome), outcome.attempt, ran) == (Executed, 1, ["ran"])


@pytest.mark.rival(20)
def test_a_driver_that_repeats_a_claim_by_itself_gets_the_same_grant_and_never_a_second_one(client: SyncClient) -> None:
    client.read("opens the store")
    store = client.once.store
    key = client.once.key("k")
    request = ClaimRequest(key.id, key.scope.text, key.text, b"n" * 16, 600_000_000)
    first, again = (client.drive(store.claim([request], timeout=5))[0] for _ in range(2))
    assert first.verdict is again.verdict is Verdict.ACQUIRED
    assert first.record == again.record
    done = Complete(key.id, first.record.token, request.nonce, b"result", b"digest")
    assert client.drive(store.settle([done], timeout=5))[0].verdict is Verdict.OK
    late = client.drive(store.claim([request], timeout=5))[0]
    assert late.verdict is Verdict.REPLAY  # a repeat that arrives after the end starts nothing


@pytest.mark.rival(20)
@pytest.mark.mission("B5")
def test_a_result_whose_acknowledgement_was_lost_is_neither_lost_nor_an_error(client: SyncClient) -> None:
    ran: list[str] = []
    with client.store_trouble("settle", times=2, applied=True) as failed:
        outcome = client.outcome("k", work_noted_in(ran))
    assert len(failed) == 2
    assert isinstance(outcome, Executed)
    assert client.outcome("k", work_noted_in(ran)).replayed
    assert ran == ["ran"]


# ── 22: purge and the fence ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(22)
def test_purge_does_not_reset_the_token_so_a_zombie_does_not_pass_the_fence(client: SyncClient) -> None:
    zombie = client.silent_owner("k", lease="1s")
    client.clock.advance("31d")
    assert client.purge() == 1
    assert client.read("k") is None
    client.clock.set_back("59m")  # an operator's correction, within the margin
    with client.claim("k") as owner:
        assert owner.token > zombie.token
        with pytest.raises(LeaseLost):
            zombie.complete("zombie's")
        owner.complete("owner's")
    assert client.read("k").value == "owner's"


@pytest.mark.rival(22)
def test_purge_spares_a_record_that_is_over_but_whose_token_is_younger_than_the_clocks_margin(
    client: SyncClient,
) -> None:
    with client.claim("k", window="1m") as claim:
        token = claim.token
    client.clock.advance("2m")
    assert client.purge() == 0
    client.clock.set_back("59m")
    client.forget("k")
    with client.claim("k") as again:
        assert again.token > token


@pytest.mark.rival(22)
@pytest.mark.parametrize("ending", ["window over", "forgotten", "purged"])
def test_the_token_grows_whatever_ended_the_keys_last_cycle(client: SyncClient, ending: str) -> None:
    tokens = []
    for _ in range(3):
        with client.claim("k", window="2h") as claim:
            tokens.append(claim.token)
        if ending == "forgotten":
            client.forget("k")
            continue
        client.clock.advance("3h")
        if ending == "purged":
            assert client.purge() == 1
    assert tokens == sorted(set(tokens))


# ── 29: fork ────────────────────────────────────────────────────────────────────────────────────────────────────────

forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.rival(29)
@forks
def test_a_forked_child_does_not_share_the_parents_connection_and_gets_right_answers(sqlite_client: SyncClient) -> None:
    client = sqlite_client
    client.run("parent's", str, "before the fork")

    def child() -> Any:
        values = [client.run(f"child's {number}", str, number) for number in range(20)]
        return [client.run("parent's", str, "before the fork"), values]

    finish = in_child(client, child)
    mine = [client.run(f"parent's {number}", str, number) for number in range(20)]
    assert finish() == ["before the fork", [str(number) for number in range(20)]]
    assert mine == [str(number) for number in range(20)]
    for number in range(20):
        assert client.outcome(f"child's {number}", str, number).replayed
        assert client.outcome(f"parent's {number}", str, number).replayed


@pytest.mark.rival(29)
@forks
def test_what_a_forked_child_writes_is_not_lost_when_the_parent_closes(sqlite_client: SyncClient) -> None:
    """Two processes on one open connection: the first to close deletes the log that the other writes to."""
    client = sqlite_client
    parent = client.another()
    parent.run("before the fork", str, 0)
    ready, closed = os.pipe(), os.pipe()

    def child() -> Any:
        parent.after_fork()
        parent.run("first", str, 1)
        os.write(ready[1], b"!")
        os.read(closed[0], 1)
        return [parent.run("second", str, 2), parent.outcome("first", str, 1).replayed]

    finish = in_child(client, child)
    os.read(ready[0], 1)
    parent.close()
    os.write(closed[1], b"!")
    assert finish() == ["2", True]
    assert [client.outcome(key, str, number).replayed for key, number in (("first", 1), ("second", 2))] == [True, True]
    for end in (*ready, *closed):
        os.close(end)


@pytest.mark.rival(29)
@forks
def test_a_forked_child_owns_no_lease_of_its_parent(sqlite_client: SyncClient) -> None:
    client = sqlite_client
    owner = client.silent_owner("k")

    def child() -> str:
        for forbidden in (owner.check, owner.complete):
            with pytest.raises(LeaseLost, match="belongs to the parent process"):
                forbidden()
        with pytest.raises(AlreadyRunning):
            client.silent_owner("k", on_running="raise")
        client.clock.advance("121s")
        client.renew_leases()
        return f"keeps {client.leases()} leases and renewed {len(client.events_named('renewed'))}"

    assert in_child(client, child)() == "keeps 0 leases and renewed 0"
    owner.check()
    owner.complete("parent's")
    assert client.read("k").value == "parent's"


@pytest.mark.rival(29)
@forks
def test_a_memory_store_says_after_a_fork_that_it_would_protect_nothing(clock: FakeClock, tmp_path: Path) -> None:
    client = SyncClient(Backend("memory", tmp_path, clock))
    client.run("k", str, 1)

    def child() -> str:
        with pytest.raises(StoreBroken) as caught:
            client.run("k", str, 1)
        return str(caught.value)

    assert "after a fork it would protect nothing" in in_child(client, child)()
    client.close()


def in_child(client: SyncClient, work: Callable[[], Any]) -> Callable[[], Any]:
    """Run `work` in a forked child; the returned function waits for its answer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            client.after_fork()
            returned = work()
        except BaseException as error:
            returned = repr(error)
        os.write(writing, json.dumps(returned).encode())
        os._exit(0)
    os.close(writing)

    def answer() -> Any:
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        return json.loads(text)

    return answer


# ── 19: size ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rival(19)
def test_a_store_with_fifty_thousand_records_is_not_slower_than_an_empty_one(backend: Backend, tmp_path: Path) -> None:
    """Walking over the records would cost hundreds of times as much: a factor of ten leaves room for any machine."""
    small, large = backend.open(), Backend(backend.kind, tmp_path / "large", backend.clock)
    large.path.parent.mkdir()
    big = large.open()
    with Once(small) as near_empty, Once(big) as full:
        near_empty.read("opens")
        full.read("opens")
        fill(big, 50_000)
        cost_small, cost_large = fastest(near_empty), fastest(full)
    assert cost_large < 10 * cost_small


def fill(store: Store, count: int) -> None:
    scope = Scope("default", "filler")
    for start in range(0, count, 1_000):
        keys = [make_key(scope, number) for number in range(start, start + 1_000)]
        requests = [ClaimRequest(key.id, scope.text, key.text, b"n" * 16, 600_000_000) for key in keys]
        run(store.claim(requests, timeout=30))


def fastest(once: Once) -> float:
    """Seconds of the quickest round of a first call, a replay and a read."""

    def one(number: int) -> float:
        began = time.perf_counter()
        once.run(f"k{number}", str, number)
        once.run(f"k{number}", str, number)
        once.read(f"k{number}")
        return time.perf_counter() - began

    return min(one(number) for number in range(100))
