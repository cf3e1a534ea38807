"""Mission B, as far as the core goes: any function, run once per payload, in threads and on event loops."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AsyncOnce,
    Executed,
    InvalidKey,
    Once,
    OncewardWarning,
    OutcomeUnknown,
    Payload,
    RecordState,
    Replayed,
    Unknown,
)
from onceward.errors import WrongRuntime
from tests.clients import TOO_LONG, AsyncClient, Backend, SyncClient
from tests.integration.submission import SUBMISSION

# ── B1: the key of a payload ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("B1")
@pytest.mark.parametrize("payload", [SUBMISSION, {"company": "Acme", "a": {"y": 1, "x": [2]}}], ids=["rich", "plain"])
def test_the_order_of_a_payloads_fields_does_not_matter(client: SyncClient, payload: dict[str, Any]) -> None:
    process = client(lambda_named("process"))
    turned = dict(reversed(payload.items()))
    assert list(turned) != list(payload)
    assert process.outcome(payload).executed
    assert process.outcome(turned).replayed


@pytest.mark.mission("B1")
def test_delivery_metadata_does_not_matter_also_where_it_is_nested(client: SyncClient) -> None:
    exclude = ["received_at", "meta.retry_count", "items.*.correlation_id"]
    process = client(key=Payload(exclude=exclude))(lambda_named("process"))

    def delivery(number: int, company: str = "Acme") -> dict[str, Any]:
        return {
            "company": company,
            "received_at": datetime(2026, 1, number, tzinfo=UTC),
            "meta": {"source": "mail", "retry_count": number},
            "items": [{"sku": "a", "correlation_id": number}, {"sku": "b", "correlation_id": -number}],
        }

    assert process.outcome(delivery(1)).executed
    assert process.outcome(delivery(2)).replayed
    assert process.outcome(delivery(2, "Other")).executed
    assert process.outcome(delivery(3) | {"meta": {"source": "portal", "retry_count": 1}}).executed


@pytest.mark.mission("B1")
def test_an_exclusion_that_never_occurs_is_warned_about_once(client: SyncClient) -> None:
    process = client(key=Payload(exclude=["recieved_at"]))(lambda_named("process"))
    with pytest.warns(OncewardWarning, match="recieved_at"):
        process({"received_at": 1})
    process({"received_at": 2})  # a second warning would be an error here


@pytest.mark.mission("B1")
def test_what_has_no_stable_meaning_is_refused_and_never_becomes_a_memory_address(client: SyncClient) -> None:
    process = client(lambda_named("process"))
    for value in (object(), float("nan"), {"callback": print}, datetime(2026, 1, 1)):  # noqa: DTZ001 (naive on purpose)
        with pytest.raises(InvalidKey):
            process(value)


KEY_OF_SUBMISSION = """
    from onceward import Once
    from onceward.stores import MemoryStore
    from tests.integration.submission import SUBMISSION

    def process(payload): ...

    print(Once(MemoryStore())(name="process")(process).key(SUBMISSION).id.hex())
"""


@pytest.mark.mission("B1")
def test_the_key_of_a_payload_is_the_same_in_every_process() -> None:
    """The order of a set and the addresses differ there. The constant ensures the same key across versions."""
    keys = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(KEY_OF_SUBMISSION)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert keys == {"51aa264b28ea591126927be767504fb9a7751b50e469109e9ba9fedf19e72e52"}


# ── B2: one call, however many callers ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("B2")
def test_ten_concurrent_callers_make_one_call(client: SyncClient) -> None:
    ran = []

    def process(company: str) -> str:
        ran.append(company)
        time.sleep(0.02)
        return company

    for company in ("Acme", "Other", "Third"):
        outcomes = client.together(10, lambda company=company: client.outcome("k" + company, process, company))  # type: ignore[misc]  # binds the loop's value
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Executed"] + ["Replayed"] * 9
        assert {outcome.value for outcome in outcomes} == {company}
    assert ran == ["Acme", "Other", "Third"]


@pytest.mark.mission("B2")
def test_different_keys_run_side_by_side(client: SyncClient) -> None:
    meeting = threading.Barrier(5)

    def process(number: int) -> int:
        meeting.wait(TOO_LONG)  # passes only if all five are inside at the same time
        return number

    running = [client.start(client.run, f"k{number}", process, number) for number in range(5)]
    assert [each.result() for each in running] == [0, 1, 2, 3, 4]


@pytest.mark.mission("B2")
def test_nothing_that_is_kept_per_key_while_it_runs_is_left_afterwards(client: SyncClient) -> None:
    def process(number: int) -> int:
        time.sleep(0.002)
        return number

    for number in range(20):
        client.together(3, lambda number=number: client.run(f"k{number}", process, number))  # type: ignore[misc]  # binds the loop's value
    assert client.leases() == 0
    assert client.once.store.watched_keys() == 0


@pytest.mark.mission("B2")
def test_the_fast_path_of_a_replay_takes_no_lock(sqlite_client: SyncClient) -> None:
    client = sqlite_client
    client.run("k", str, 1)
    writer = sqlite3.connect(client.backend.path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")  # no other connection can write now
    try:
        assert client.outcome("k", str, 1).replayed
    finally:
        writer.close()


RACER = """
    import sys, time
    from onceward import Once

    def process(company):
        with open(sys.argv[2], "a") as effects:
            effects.write("ran\\n")
        time.sleep(0.05)
        return company

    with Once(sys.argv[1]) as once:
        once.read("opens the store")
        print("ready", flush=True)
        sys.stdin.readline()
        print([once.outcome(f"k{number}", process, "Acme").kind for number in range(3)])
"""


@pytest.mark.mission("B2")
def test_several_processes_on_one_file_make_one_call_a_key(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    command = [sys.executable, "-c", textwrap.dedent(RACER), f"sqlite:///{tmp_path / 'once.db'}", str(effects)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = [racer.communicate(timeout=TOO_LONG)[0] for racer in racers]
    assert effects.read_text() == "ran\n" * 3
    assert "".join(answers).count("executed") == 3
    assert "".join(answers).count("replayed") == 6


# ── B3: any function ────────────────────────────────────────────────────────────────────────────────────────────────


class Broker:
    """Something with methods."""

    def __init__(self, name: str) -> None:
        self.name = name

    def quote(self, company: str) -> str:
        return f"{self.name} quotes {company}"

    def __call__(self, company: str) -> str:
        return f"{self.name} called by {company}"


@pytest.mark.mission("B3")
@pytest.mark.parametrize(
    "function",
    [len, str, Broker("b").quote, Broker("b"), partial(int, base=16)],
    ids=["builtin", "class", "method", "callable", "partial"],
)
@pytest.mark.parametrize("mode", ["blocking"])
def test_any_callable_is_run_once_and_its_outcome_says_whether_it_was_a_replay(
    client: SyncClient, function: Callable[..., Any]
) -> None:
    first, second = (client.outcome("given", function, "a") for _ in range(2))
    assert (first.replayed, second.replayed) == (False, True)
    assert first.value == second.value == function("a")
    assert (first.key, second.key, first.attempt, first.token) == ("given", "given", 1, second.token)


@pytest.mark.mission("B3")
def test_the_same_company_with_other_content_is_another_submission_and_two_queues_are_not(client: SyncClient) -> None:
    ran = []

    @client(key=Payload(exclude=["submission.queue"]))
    def process(submission: dict[str, Any]) -> str:
        ran.append(submission["content"])
        return f"processed {submission['content']}"

    from_north = {"company": "Acme", "content": "fleet", "queue": "north"}
    assert process(from_north) == "processed fleet"
    assert process.outcome(from_north | {"queue": "south"}).replayed
    assert process.outcome(from_north | {"content": "marine"}).executed
    assert ran == ["fleet", "marine"]


# ── B5: failures ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("B5")
def test_an_exception_is_not_cached_and_the_next_delivery_tries_again(client: SyncClient) -> None:
    failures = [OSError("first"), ValueError("second")]

    @client
    def process(company: str) -> str:
        if failures:
            raise failures.pop(0)
        return "processed"

    for expected in (OSError, ValueError):
        with pytest.raises(expected):
            process("Acme")
    outcome = process.outcome("Acme")
    assert (outcome.value, outcome.attempt) == ("processed", 3)


@pytest.mark.mission("B5")
def test_a_failed_write_of_the_result_is_retried(client: SyncClient) -> None:
    ran: list[str] = []

    @client
    def process(company: str) -> str:
        ran.append(company)
        return "processed"

    with client.store_trouble("settle", times=3):
        assert process("Acme") == "processed"
    assert len(client.events_named("settle_retried")) == 3
    assert process.outcome("Acme").replayed
    assert ran == ["Acme"]


@pytest.mark.mission("B5")
def test_a_write_of_the_result_that_fails_to_the_end_surfaces_with_the_value(client: SyncClient) -> None:
    @client(settle_timeout="30ms")
    def process(company: str) -> str:
        return "processed"

    with client.store_trouble("settle"):
        outcome = process.outcome("Acme")
        assert (type(outcome), outcome.value, outcome.lost) == (Unknown, "processed", False)
        with pytest.raises(OutcomeUnknown) as surfaced:
            process("Other")
    assert surfaced.value.value == "processed"
    assert process.read("Acme").state is RecordState.PENDING  # claimed until its lease lapses, then after_crash decides
    assert len(client.events_named("unknown")) == 2


# ── B6: where keys come from ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("B6")
def test_a_clients_key_a_content_key_and_a_business_key_each_say_what_is_the_same_work(client: SyncClient) -> None:
    ran: list[str] = []

    @client(key="{idempotency_key}", name="client")
    def charge(idempotency_key: str, amount: int) -> None:
        ran.append("client")

    @client(name="content")
    def process(submission: dict[str, Any]) -> None:
        ran.append("content")

    @client(key="submission:{broker}:{reference}", name="business", fingerprint="none")
    def register(broker: str, reference: str, text: str) -> None:
        ran.append("business")

    charge("c-1", 10)
    charge("c-1", 10)
    charge("c-2", 10)
    assert ran == ["client", "client"]
    process({"company": "Acme", "n": 1})
    process({"n": 1, "company": "Acme"})
    process({"company": "Acme", "n": 2})
    assert ran[2:] == ["content", "content"]
    register("north", "17", "first text")
    register("north", "17", "corrected text")
    register("south", "17", "first text")
    assert ran[4:] == ["business", "business"]
    assert register.key("north", "17", "").text == "submission:north:17"


@pytest.mark.mission("B6")
def test_the_parts_of_a_business_key_cannot_flow_into_each_other(client: SyncClient) -> None:
    register = client(key="{broker}:{reference}", fingerprint="none")(lambda_named("register", "broker", "reference"))
    assert register.outcome("a:b", "c").executed
    assert register.outcome("a", "b:c").executed


# ── B7: threads and event loops ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("B7")
async def test_the_sync_client_refuses_to_block_an_event_loop_and_names_the_async_one(backend: Backend) -> None:
    once = Once(backend.open())
    with pytest.raises(WrongRuntime, match="AsyncOnce"):
        once.run("k", str, 1)
    await asyncio.to_thread(once.close)


@pytest.mark.mission("B7")
def test_the_async_client_refuses_to_run_without_an_event_loop(backend: Backend) -> None:
    async def work() -> None: ...

    once = AsyncOnce(backend.open())
    call = once.run("k", work)
    with pytest.raises(WrongRuntime, match="Once"):
        call.send(None)


@pytest.mark.mission("B7")
@pytest.mark.parametrize("mode", ["async"])
def test_a_hundred_tasks_that_wait_for_one_of_them_do_not_block_their_loop(client: AsyncClient) -> None:
    ran = []
    turns = 0

    async def process(company: str) -> str:
        ran.append(company)
        before = turns
        while turns < before + 20:  # noqa: ASYNC110 (if waiting callers blocked the loop, the counter would not run)
            await asyncio.sleep(0.001)
        return company

    async def story() -> list[Any]:
        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.001)
                turns += 1

        counting = asyncio.create_task(count())
        outcomes = await asyncio.gather(*(client.once.outcome("k", process, "Acme") for _ in range(100)))
        counting.cancel()
        return outcomes

    outcomes = client.drive(story())
    assert sorted(type(outcome) is Executed for outcome in outcomes) == [False] * 99 + [True]
    assert {type(outcome) for outcome in outcomes} == {Executed, Replayed}
    assert ran == ["Acme"]


@pytest.mark.mission("B7")
def test_the_sync_and_async_sides_of_one_client_work_on_the_same_data(backend: Backend) -> None:
    ran: list[str] = []
    with Once(backend.open()) as once:

        async def process(company: str) -> str:
            ran.append(company)
            await asyncio.sleep(0)
            return company

        async def story() -> None:
            async with once.aio.claim("shared") as claim:
                await claim.complete("from the loop")

        asyncio.run(story())
        entry = once.read("shared")
        assert entry is not None
        assert entry.value == "from the loop"


def lambda_named(name: str, *parameters: str) -> Callable[..., Any]:
    """A function of that name whose result is the first argument's type name."""

    def one(payload: Any) -> str:
        return type(payload).__name__

    def two(broker: Any, reference: Any) -> str:
        return f"{broker} {reference}"

    chosen = two if parameters else one
    chosen.__name__ = chosen.__qualname__ = name
    return chosen
