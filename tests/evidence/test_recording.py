"""Recording: every request with its answer, in memory or in a file that outlives its process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from onceward import ConfigurationError, StoreUnavailable
from onceward.errors import StoreBroken
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, ClaimRequest, Complete, Renewal, Verdict
from onceward.runtime import threads
from onceward.runtime.threads import ThreadRuntime
from onceward.stores import MemoryStore
from onceward.testing.history import (
    FileLog,
    Forget,
    Lookup,
    MemoryLog,
    Operation,
    Read,
    Recorder,
    Scan,
    mark_ended,
    read_log,
)
from onceward.testing.history.operation import partial_record
from tests.faulty import FaultyNetwork, FaultyStore

ROOT = Path(__file__).resolve().parents[2]
ID, OTHER = b"\0one key", b"\xff another"
CLAIMS = [ClaimRequest(id, "shop", id.hex(), b"nonce", 1_000_000, note={"é\0🦊": ""}) for id in (ID, OTHER)]


def run_each_verb(recorder: Store) -> list[Answer]:
    """Call each verb once, and return the answers in order."""

    async def run() -> list[Answer]:
        await recorder.open(ThreadRuntime())
        claimed = await recorder.claim(CLAIMS, timeout=1)
        token = claimed[0].now
        renewed = await recorder.renew([Renewal(ID, token, b"nonce", 5)], timeout=1)
        settled = await recorder.settle([Complete(ID, token, b"nonce", result=b"\0\xff", digest=b"d")], timeout=1)
        read = await recorder.read([ID, b"unknown"], timeout=1)
        assert recorder.lookup is not None
        assert recorder.lookup(b"unknown", b"") is None
        done = recorder.lookup(ID, b"")
        assert done is not None
        assert (done.state, done.token, done.result) == (RecordState.COMPLETED, token, b"\0\xff")
        looked_up = Answer(Verdict.REPLAY, partial_record(ID, done), 0)
        forgotten = await recorder.forget([OTHER], force=True, timeout=1)
        page = await recorder.scan(Filter(), cursor=None, limit=1, timeout=1)
        seen = [Answer(Verdict.OK, record, page.now) for record in page.records]
        assert sum((await recorder.counts(timeout=1)).values()) == 2
        assert await recorder.purge(10, timeout=1) == 0
        await recorder.close()
        return [*claimed, *renewed, *settled, *read, looked_up, *forgotten, *seen]

    return threads.run(run())


def test_each_request_of_each_batch_is_one_operation_with_its_own_answer() -> None:
    log = MemoryLog()
    before = time.monotonic_ns()
    answers = run_each_verb(Recorder(MemoryStore(), log, by="me"))
    operations = log.operations()
    assert [one.answer for one in operations] == answers
    verbs = ["claim", "claim", "renew", "complete", "read", "read", "lookup", "forget", "scan"]
    assert [one.verb for one in operations] == verbs
    kinds = [ClaimRequest, ClaimRequest, Renewal, Complete, Read, Read, Lookup, Forget, Scan]
    assert [type(one.request) for one in operations] == kinds
    assert [one.id for one in operations] == [ID, OTHER, ID, ID, ID, b"unknown", ID, OTHER, ID]
    assert operations[7].request == Forget(OTHER, force=True)
    instants = [instant for one in operations for instant in (one.called, one.returned or 0)]
    assert min(instants) > before
    assert all(one.called < (one.returned or 0) for one in operations)
    assert {one.by for one in operations} == {"me"}


def test_a_file_holds_the_same_history(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "history.jsonl")
    answers = run_each_verb(Recorder(MemoryStore(), log, by="me"))
    log.close()
    operations = read_log(log.path)
    assert [one.answer for one in operations] == answers
    assert operations[0].request == CLAIMS[0]
    assert [one.verb for one in operations][2:4] == ["renew", "complete"]
    assert all(one.called < (one.returned or 0) for one in operations)


def test_wherever_a_file_is_torn_what_is_before_is_read(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "whole.jsonl")
    run_each_verb(Recorder(MemoryStore(), log))
    log.close()
    whole, text = read_log(log.path), log.path.read_bytes()
    torn = tmp_path / "torn.jsonl"
    for length in range(0, len(text), 29):
        torn.write_bytes(text[:length])
        found = read_log(torn)
        assert [one.request for one in found] == [one.request for one in whole[: len(found)]]
        answered = [one.answer for one in found if one.answer is not None]
        assert answered == [one.answer for one in whole[: len(answered)]]
        mark_ended(torn)
        ended = read_log(torn)
        assert [one.answer for one in ended] == [one.answer for one in found]
        assert all(one.returned is not None for one in ended), "the torn line must not hide the end"


def test_a_file_that_is_broken_in_the_middle_is_not_taken_for_torn(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "history.jsonl")
    run_each_verb(Recorder(MemoryStore(), log))
    log.close()
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join([*lines[:2], lines[2][:20] + b"\n", *lines[3:]]))
    with pytest.raises(msgspec.DecodeError):
        read_log(log.path)


def test_a_log_is_of_one_process_and_never_overwritten(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "history.jsonl")
    with pytest.raises(FileExistsError):
        FileLog(log.path)
    log._pid += 1  # as seen from a child that was forked
    with pytest.raises(ConfigurationError, match="belongs to the parent process"):
        run_each_verb(Recorder(MemoryStore(), log))
    log.close()


@pytest.mark.fault("F53")
@pytest.mark.parametrize("late_effects", [True, False])
def test_a_call_that_raised_has_no_answer_and_ends_where_the_store_says(late_effects: bool) -> None:
    network, log = FaultyNetwork(), MemoryLog()
    recorder = Recorder(FaultyStore(MemoryStore(), network), log, late_effects=late_effects)
    network.lose_replies("claim", 1)
    with pytest.raises(StoreUnavailable):
        threads.run(recorder.claim(CLAIMS, timeout=1))
    for one in log.operations():
        assert one.answer is None
        assert one.error == "StoreUnavailable: claim: connection reset"
        assert (one.returned is None) is late_effects


async def test_a_call_that_was_cancelled_lingers_always() -> None:
    class Slow(MemoryStore):
        async def claim(self, *_: object, **__: object) -> list[Answer]:
            await asyncio.sleep(60)
            raise AssertionError

    log = MemoryLog()
    call = asyncio.create_task(Recorder(Slow(), log, late_effects=False).claim(CLAIMS, timeout=1), name="a task")
    await asyncio.sleep(0)
    assert [one.answer for one in log.operations()] == [None, None], "still under way"
    call.cancel()
    await asyncio.wait([call])
    one, _ = log.operations()
    assert (one.returned, one.answer) == (None, None)
    assert one.error.startswith("CancelledError")
    assert one.by == f"{os.getpid()} a task"


def test_a_store_that_gives_too_few_answers_is_broken() -> None:
    class Short(MemoryStore):
        async def claim(self, *arguments: object, **how: object) -> list[Answer]:
            return []

    log = MemoryLog()
    with pytest.raises(StoreBroken, match="0 answers to 2 requests"):
        threads.run(Recorder(Short(), log).claim(CLAIMS, timeout=1))
    assert [one.answer for one in log.operations()] == [None, None]


def test_a_clone_writes_into_the_same_log_and_watchers_are_passed_on() -> None:
    class Clones(MemoryStore):
        def clone(self) -> MemoryStore:
            return MemoryStore()

    log = MemoryLog()
    assert (alone := Recorder(MemoryStore(), log)).clone() is alone
    recorder = Recorder(Clones(), log, by="me")
    threads.run(recorder.clone().read([ID], timeout=1))
    assert [one.by for one in log.operations()] == ["me (clone)"]
    woken = threading.Event()
    assert recorder.notifications is not None
    stop = recorder.notifications.watch(ID, woken.set)
    run_each_verb(recorder)
    assert woken.is_set()
    stop()


KILLED = """
import os, signal, sys
from onceward.runtime import threads
from onceward.stores import MemoryStore
from onceward.protocol.requests import ClaimRequest
from onceward.testing.history import FileLog, Recorder

class Deadly(MemoryStore):
    async def renew(self, *_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

async def live():
    recorder = Recorder(Deadly(), FileLog(sys.argv[1]), late_effects=True)
    await recorder.claim([ClaimRequest(b"key", "", "", b"nonce", 1000)], timeout=1)
    from onceward.protocol.requests import Renewal
    await recorder.renew([Renewal(b"key", 1, b"nonce", 1)], timeout=1)

threads.run(live())
"""


@pytest.mark.fault("F30")
def test_the_requests_of_a_killed_process_are_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, env=environment())
    assert done.returncode == -signal.SIGKILL
    claimed, renewed = read_log(path)
    assert claimed.answer is not None
    assert claimed.answer.verdict is Verdict.ACQUIRED
    assert renewed.verb == "renew"
    assert (renewed.answer, renewed.returned, renewed.error) == (None, None, "no answer")
    mark_ended(path)
    claimed_again, renewed_again = read_log(path)
    assert claimed_again == claimed
    assert isinstance(renewed_again, Operation)
    assert renewed_again.returned is not None
    assert renewed.called < renewed_again.returned < time.monotonic_ns()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
