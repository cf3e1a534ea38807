"""`with once.claim(key) as claim`: which caller may enter, how it ends, and what the work can do with its claim."""

from __future__ import annotations

import asyncio
import contextvars
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AlreadyDone,
    AlreadyRunning,
    AsyncOnce,
    ConfigurationError,
    LeaseLost,
    NotAcquired,
    Once,
    OutcomeParked,
    PayloadMismatch,
    RecordState,
    applied,
    current_async_claim,
    current_claim,
    not_applied,
    verify,
)
from onceward.errors import AlreadyCompleted, ClaimError, Reentrant, ResultNotStored, StillRunning, WrongRuntime
from onceward.stores import MemoryStore
from onceward.testing import FakeClock
from tests.clients import Backend, SyncClient
from tests.unit.other_worker import owned


@pytest.fixture
def backend(tmp_path: Path, clock: FakeClock) -> Backend:
    """Memory is enough here: nothing in this file depends on the store."""
    return Backend("memory", tmp_path, clock)


def here(client: SyncClient) -> Any:
    """Return the claim that this code runs in."""
    return current_claim() if client.mode == "blocking" else current_async_claim()


# ── how it ends ──


@pytest.mark.mission("A5")
def test_a_block_that_ends_is_completed(client: SyncClient) -> None:
    with client.claim("k") as claim:
        assert (claim.key, claim.attempt, claim.state, claim.note) == ("k", 1, RecordState.PENDING, {})
        assert client.read("k").state is RecordState.PENDING
    entry = client.read("k")
    assert (entry.state, entry.value, entry.stored) == (RecordState.COMPLETED, None, True)
    assert claim.state is RecordState.COMPLETED


@pytest.mark.mission("A5")
@pytest.mark.rival(7)
@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), SystemExit(3)])
def test_a_block_that_raises_is_failed_with_the_message(client: SyncClient, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, client.claim("k") as claim:
        raise error
    assert caught.value is error
    entry = client.read("k")
    assert entry.state is RecordState.FAILED
    assert entry.error.startswith(type(error).__name__)
    assert claim.state is RecordState.FAILED
    with client.claim("k") as claim:
        assert claim.attempt == 2


def test_a_block_that_raises_is_parked_if_its_effect_is_unknown(client: SyncClient) -> None:
    with pytest.raises(ConnectionError), client.claim("k", after_crash="park"):
        raise ConnectionError("reset")
    assert client.read("k").state is RecordState.PARKED
    with pytest.raises(OutcomeParked, match="ConnectionError: reset"), client.claim("k"):
        pytest.fail("no caller may enter")
    client.resolve("k", applied("found it"))
    with pytest.raises(AlreadyDone) as caught, client.claim("k"):
        pytest.fail("it is done")
    assert caught.value.value == "found it"


def test_complete_records_the_value_immediately(client: SyncClient) -> None:
    with client.claim("k") as claim:
        claim.complete({"pages": 3})
        assert client.read("k").value == {"pages": 3}
        claim.complete({"pages": 3})  # the same again is fine
        with pytest.raises(AlreadyCompleted):
            claim.complete({"pages": 4})
    assert client.read("k").value == {"pages": 3}


def test_what_is_raised_after_complete_changes_nothing(client: SyncClient) -> None:
    with pytest.raises(ZeroDivisionError), client.claim("k") as claim:
        claim.complete(1)
        raise ZeroDivisionError
    assert (client.read("k").state, client.read("k").value) == (RecordState.COMPLETED, 1)


@pytest.mark.rival(1)
@pytest.mark.mission("A7")
def test_a_lost_claim_changes_nothing_and_raises(client: SyncClient) -> None:
    with pytest.raises(LeaseLost), client.claim("k") as late:
        client.clock.advance("11m")
        with owned(client, "k"):
            pass
        assert client.read("k").attempt == 2
        with pytest.raises(LeaseLost):
            late.complete("from the late one")
        with pytest.raises(LeaseLost):
            late.annotate(by="the late one")
    entry = client.read("k")
    assert (entry.state, entry.value, entry.note, entry.attempt) == (RecordState.COMPLETED, None, {}, 2)


@pytest.mark.rival(1)
def test_the_exception_of_a_lost_claim_passes_and_changes_nothing(client: SyncClient) -> None:
    with pytest.raises(ZeroDivisionError), client.claim("k"):
        client.clock.advance("11m")
        with owned(client, "k"):
            pass
        raise ZeroDivisionError
    assert client.read("k").state is RecordState.COMPLETED


@pytest.mark.mission("A4")
def test_check_raises_after_another_worker_took_over(client: SyncClient) -> None:
    with pytest.raises(LeaseLost), client.claim("k") as late:
        late.check()
        client.clock.advance("11m")
        with pytest.raises(LeaseLost, match="a later renewal may succeed"):
            late.check()
        with owned(client, "k"):
            client.renew_leases()
            late.check()


# ── which caller may enter ──


def test_another_worker_is_already_processing_the_key(client: SyncClient) -> None:
    with owned(client, "k"):
        with pytest.raises(AlreadyRunning) as caught, client.claim("k", on_running="raise"):
            pytest.fail("it is taken")
        assert not isinstance(caught.value, StillRunning)
        assert isinstance(caught.value, NotAcquired)
        assert caught.value.retry_after is not None
        assert 590 < caught.value.retry_after <= 600
        with pytest.raises(StillRunning), client.claim("k", wait="20ms"):
            pytest.fail("it is taken")


def test_it_is_done_and_the_result_is_in_the_exception(client: SyncClient) -> None:
    with client.claim("k") as claim:
        claim.complete([1, 2])
    with pytest.raises(AlreadyDone) as caught, client.claim("k"):
        pytest.fail("it is done")
    assert (caught.value.value, caught.value.stored, caught.value.key) == ([1, 2], True, "k")


def test_a_payload_under_the_key_is_compared(client: SyncClient) -> None:
    with client.claim("k", payload={"amount": 1}):
        pass
    with pytest.raises(PayloadMismatch, match="differs in: amount"), client.claim("k", payload={"amount": 2}):
        pytest.fail("another payload")
    with pytest.raises(AlreadyDone), client.claim("k", payload={"amount": 1}):
        pytest.fail("it is done")


def test_equal_keys_of_two_operations_are_different(client: SyncClient) -> None:
    with client.claim("7", name="invoice"), client.claim("7", name="mail"), client.claim("7"):
        pass
    assert client.read("7", name="invoice").state is RecordState.COMPLETED
    assert client.read("7", name="letter") is None


def test_one_block_may_be_entered_again(client: SyncClient) -> None:
    """A block is a description; each entry is a claim of its own."""
    block = client.once.claim("k", window="1h")
    for _ in range(2):
        if client.mode == "blocking":
            with block:
                pass
        else:
            client.wait(entered(block))
        client.clock.advance("2h")
    assert len(client.events_named("completed")) == 2


def test_one_block_cannot_have_two_owners(client: SyncClient) -> None:
    """Otherwise the first one to leave would end the claim of the other."""
    block = client.once.claim("k", window="1ms")
    inside = client.enter(block, contextvars.Context())
    with pytest.raises(Reentrant, match="already been entered"):
        client.enter(block, contextvars.Context())
    assert inside.attempt == 1
    client.leave(block, contextvars.Context(), None)
    assert inside.state is RecordState.COMPLETED


@pytest.mark.mission("A6")
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("on_store_down", "run"),
        ("on_missing_key", "run"),
        ("on_done", "replay"),
        ("on_done", "skip"),
        ("on_running", "skip"),
        ("fingerprint", "none"),
        ("fingerprint", ["amount"]),
    ],
)
def test_a_setting_that_a_block_would_ignore_is_refused(client: SyncClient, setting: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"claim\({setting}=.*has no effect: in a block"):
        client.once.claim("k", **{setting: value})


def test_settings_that_hold_for_a_block_are_taken(client: SyncClient) -> None:
    settings: dict[str, Any] = {
        "lease": "1m", "window": "1h", "wait": "1s", "on_running": "raise", "on_done": "raise", "after_crash": "park",
        "final": ValueError, "retry": KeyError, "not_applied": OSError, "max_attempts": 2, "retry_delay": "1s",
        "settle_timeout": "1s", "on_lost": "notify", "store_result": True, "max_result_bytes": 10, "compress_from": 10,
        "on_store_down": "raise", "on_missing_key": "raise",
    }  # fmt: skip
    with client.claim("k", **settings):
        pass


def test_a_client_s_defaults_for_functions_do_not_hinder_its_blocks(client: SyncClient) -> None:
    other = client.another(on_store_down="run", on_missing_key="run", fingerprint="none")
    with other.claim("k"):
        pass


async def entered(block: Any) -> None:
    async with block:
        pass


def test_verify_is_asked_before_the_block_runs_after_a_crash(client: SyncClient) -> None:
    answers = [not_applied, applied("charged")]
    settings: dict[str, Any] = {"after_crash": verify(lambda: answers.pop(0))}
    client.silent_owner("k", **settings)
    client.clock.advance("11m")
    client.another().silent_owner("k", **settings)
    assert answers == [applied("charged")]
    client.clock.advance("11m")
    with pytest.raises(AlreadyDone) as caught, client.another().claim("k", **settings):
        pytest.fail("the effect is there already")
    assert caught.value.value == "charged"


# ── what the work can do with it ──


@pytest.mark.mission("A2", "A3")
def test_notes_and_the_first_time_survive_a_take_over(client: SyncClient) -> None:
    first = client.silent_owner("k", note={"source_path": "in/a.pdf"})
    first.annotate(page="3")
    created = client.read("k").created_at
    client.clock.advance("11m")
    with client.another().claim("k", note={"worker": "b"}) as second:
        assert second.note == {"source_path": "in/a.pdf", "page": "3", "worker": "b"}
        second.annotate(page="4")
        assert second.note["page"] == "4"
    entry = client.read("k")
    assert entry.note == {"source_path": "in/a.pdf", "page": "4", "worker": "b"}
    assert (entry.created_at, entry.attempt) == (created, 2)


@pytest.mark.mission("C8")
def test_a_derived_key_is_the_same_on_every_attempt_and_another_per_step_and_cycle(client: SyncClient) -> None:
    seen: list[tuple[str, str]] = []

    @client(key="k:{x}", window="1h")
    def work(x: int) -> None:
        seen.append((here(client).derived_key("charge"), here(client).derived_key("mail")))
        if len(seen) == 1:
            raise ConnectionError

    assert [work.outcome(1).kind, work.outcome(1).kind] == ["failed", "executed"]
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[0][1]
    client.clock.advance("2h")
    assert work.outcome(1).kind == "executed"  # tomorrow's charge is not yesterday's replay
    work.forget(1)
    work(1)
    work(2)
    charges = {charge for charge, _ in seen}
    assert len(charges) == 4


def test_tokens_grow_with_every_ownership(client: SyncClient) -> None:
    tokens = []
    for _ in range(3):
        with client.claim("k") as claim:
            tokens.append(claim.token)
        client.forget("k")
    assert tokens == sorted(set(tokens))


def test_the_work_finds_its_claim_also_in_nested_calls(client: SyncClient) -> None:
    seen: list[str] = []

    @client(key="inner:{x}")
    def inner(x: int) -> None:
        seen.append(here(client).key)

    @client(key="outer:{x}")
    def outer(x: int) -> None:
        seen.append(here(client).key)
        inner(x)
        seen.append(here(client).key)
        with pytest.raises(ZeroDivisionError), client.claim("block"):
            raise ZeroDivisionError
        seen.append(here(client).key)

    outer(1)
    assert seen == ["outer:1", "inner:1", "outer:1", "outer:1"]
    with pytest.raises(ClaimError, match="no claim is held here"):
        here(client)


def test_the_work_may_complete_its_own_claim(client: SyncClient) -> None:
    @client(key="k:{x}")
    def work(x: int) -> str:
        claim = here(client)
        client.wait(claim.complete("recorded")) if client.mode == "async" else claim.complete("recorded")
        return "returned"

    assert work(1) == "returned"
    assert work(1) == "recorded"


@pytest.mark.rival(3)
def test_the_same_key_inside_itself_is_refused_instead_of_waiting_forever(client: SyncClient) -> None:
    with client.claim("k"):
        with pytest.raises(Reentrant, match="its own key"), client.claim("k"):
            pytest.fail("it would wait for itself")
        with client.claim("another"), pytest.raises(Reentrant), client.claim("k"):
            pytest.fail("also further out")


def test_writing_through_a_claim_of_the_other_client_kind_names_the_right_function() -> None:
    def work() -> None:
        with pytest.raises(WrongRuntime, match="current_claim"):
            current_async_claim()

    async def awaited() -> None:
        claim = current_claim()
        assert (claim.key, claim.attempt) == ("k", 1)
        with pytest.raises(WrongRuntime, match="current_async_claim"):
            claim.annotate(page="3")

    once = Once(MemoryStore())
    once.run("k", work)

    async def main() -> None:
        async with AsyncOnce(MemoryStore()) as other:
            await other.run("k", awaited)

    asyncio.run(main())
    once.close()


def test_a_claim_shows_itself_in_a_line(client: SyncClient) -> None:
    with client.claim("k\nfake log line") as claim:
        text = repr(claim.claim)
    assert "attempt 1" in text
    assert "\n" not in text


def test_a_call_after_a_block_without_a_value_says_why_it_has_no_result() -> None:
    once = Once(MemoryStore())

    @once(key="{key}", name="work")
    def typed(key: str) -> int:
        return 1

    with once.claim("order:1", name="work"):
        pass
    with pytest.raises(
        ResultNotStored, match=r"a block or an operator completed .* without a value .*complete\(value\)"
    ):
        typed("order:1")
