"""Work that calls itself, is interrupted inside of a store call, or is completed twice."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward import AlreadyDone, Once, RecordState
from onceward.errors import AlreadyCompleted, Reentrant
from onceward.runtime.threads import run
from onceward.stores import MemoryStore
from onceward.stores.sqlite import SQLiteStore
from tests.clients import SyncClient
from tests.integration.processes import work

# ── F35: re-entry ──


@pytest.mark.fault("F35")
@pytest.mark.timeout(100)
def test_work_that_calls_itself_under_the_same_key_gets_an_error_instead_of_waiting_for_itself(
    client: SyncClient,
) -> None:
    def outer() -> str:
        with pytest.raises(Reentrant, match="already holds this key"):
            client.run("order 7", outer)
        with pytest.raises(Reentrant):
            client.map(outer_item, ["order 7"], key=lambda item: item, name="shared")[0].unwrap()
        assert client.run("order 8", outer_other) == "other key"
        return "done"

    def outer_item(item: str) -> None:
        pytest.fail("must not run")

    def outer_other() -> str:
        return "other key"

    assert client.run("order 7", outer) == "done"


@pytest.mark.fault("F35")
@pytest.mark.timeout(100)
def test_a_block_inside_a_block_of_the_same_key_gets_an_error_even_with_one_in_between(client: SyncClient) -> None:
    with client.claim("order 7"), client.claim("order 8"):
        with pytest.raises(Reentrant), client.claim("order 7"):
            pass
        assert client.read("order 7").state is RecordState.PENDING


@pytest.mark.fault("F35")
def test_a_key_that_was_completed_inside_its_block_may_be_asked_for_again_there(client: SyncClient) -> None:
    with client.claim("order 7") as claim:
        claim.complete("done")
        with pytest.raises(AlreadyDone), client.claim("order 7"):
            pass


class Interrupter:
    """A clock that makes another call when a store call reads it, on the same thread, as a signal handler would."""

    def __init__(self) -> None:
        self.call: Callable[[], Any] | None = None
        self.answers: list[Any] = []

    def now(self) -> int:
        call, self.call = self.call, None
        if call is not None:
            try:
                self.answers.append(call())
            except Exception as error:
                self.answers.append(error)
        return time.time_ns() // 1000


@pytest.mark.fault("F35")
@pytest.mark.timeout(100)
@pytest.mark.parametrize("verb", ["run", "read", "forget", "close"])
def test_a_call_from_a_signal_handler_inside_a_store_call_is_refused_and_the_outer_one_unharmed(
    tmp_path: Path, verb: str
) -> None:
    clock = Interrupter()
    once = Once(SQLiteStore(tmp_path / "once.db", clock=clock))
    once.run("before", work)
    inside = {
        "run": lambda: once.run("inner", work),
        "read": lambda: once.read("inner"),
        "forget": lambda: once.forget("inner"),
        "close": lambda: run(once.store.close()),
    }
    clock.call = inside[verb]
    assert once.run("outer", work) == "done"
    assert [type(answer) for answer in clock.answers] == [Reentrant]
    assert once.outcome("outer", work).replayed
    assert once.outcome("inner", work).executed
    once.close()


@pytest.mark.fault("F35")
@pytest.mark.timeout(100)
@pytest.mark.parametrize("cache", [0, 10])
def test_the_memory_store_answers_a_call_inside_a_call_and_each_key_is_done_once(cache: int) -> None:
    clock = Interrupter()
    once = Once(MemoryStore(clock=clock), cache=cache)
    runs: list[str] = []
    clock.call = lambda: once.outcome("other", runs.append, "other")
    assert once.outcome("own", runs.append, "own").executed
    clock.call = lambda: once.outcome("same", runs.append, "same")
    assert once.outcome("same", runs.append, "same").replayed
    assert [answer.executed for answer in clock.answers] == [True, True]
    assert runs == ["other", "own", "same"]
    once.close()


STORM = """
    import itertools, random, signal, sys, time
    from onceward import Once
    from onceward.errors import Reentrant

    once = Once(sys.argv[1], cache=int(sys.argv[2]))
    numbers = itertools.count()
    refused = 0

    def work(number: int) -> int:
        return number

    def handler(*_):
        global refused
        mine = next(numbers)
        try:
            once.run(f"handler {mine % 500}", work, mine % 500)
        except Reentrant:
            refused += 1
        arm()  # only now: handlers that interrupt each other would only test Python's stack

    def arm():
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.0005))

    once.run("first", work, 0)  # connected, and everything is imported
    signal.signal(signal.SIGALRM, handler)
    arm()
    began = time.monotonic()
    done = 0
    locked = sys.argv[1] != "memory://"  # only where a call can meet another one of its own thread is it refused
    while time.monotonic() < began + 1.0 or (
        not (done > 50 and (refused or not locked)) and time.monotonic() < began + 15
    ):
        once.run(f"main {done % 500}", work, done % 500)
        done += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    once.close()
    print(done > 50, next(numbers) > 50, refused > 0 or not locked, flush=True)
"""


@pytest.mark.fault("F35")
@pytest.mark.parametrize(("url", "cache"), [("memory://", 0), ("memory://", 100), ("sqlite:///{}/once.db", 0)])
def test_a_storm_of_signals_whose_handler_claims_never_deadlocks(tmp_path: Path, url: str, cache: int) -> None:
    script = textwrap.dedent(STORM)
    done = subprocess.run(
        [sys.executable, "-c", script, url.format(tmp_path), str(cache)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.strip() == "True True True", done.stderr
    assert done.returncode == 0


# ── F36: completing twice ──


@pytest.mark.fault("F36")
def test_completing_twice_with_the_same_result_is_fine_and_with_another_an_error(client: SyncClient) -> None:
    with client.claim("order 7") as claim:
        claim.complete({"total": 12})
        claim.complete({"total": 12})
        with pytest.raises(AlreadyCompleted):
            claim.complete({"total": 13})
    entry = client.read("order 7")
    assert (entry.state, entry.value) == (RecordState.COMPLETED, {"total": 12})


@pytest.mark.fault("F36")
def test_completing_after_the_block_has_ended_changes_nothing(client: SyncClient) -> None:
    with client.claim("order 7") as claim:
        pass
    claim.complete(None)
    with pytest.raises(AlreadyCompleted):
        claim.complete("late")
    assert client.read("order 7").value is None


@pytest.mark.fault("F36")
def test_a_failure_after_the_result_was_recorded_does_not_undo_it(client: SyncClient) -> None:
    with pytest.raises(ValueError, match="afterwards"), client.claim("order 7") as claim:
        claim.complete("sent")
        raise ValueError("afterwards")
    entry = client.read("order 7")
    assert (entry.state, entry.value) == (RecordState.COMPLETED, "sent")
