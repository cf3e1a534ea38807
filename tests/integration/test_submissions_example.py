"""examples/submissions: mission B end to end, the same tests on every store, with a real server for the paid calls."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from examples.submissions.__main__ import consume_all, main
from examples.submissions.bureau import Bureau, bureau, score_of
from examples.submissions.desk import Desk
from examples.submissions.intake import BROKERS, METRICS, PATH, TOKEN, application
from examples.submissions.quote_table import QuoteTable
from examples.submissions.rules import CENT, RATES, Submission
from onceward import Once, PayloadMismatch
from onceward.observe import prometheus
from onceward.queues import MemoryQueue
from onceward.stores import MemoryStore
from onceward.testing import FakeClock
from tests.servers.postgres import Postgres, new_database
from tests.servers.redis import shared

TOO_LONG = 100.0
NUMBERS = count(time.time_ns())  # unique per test, so that tests do not see each other's data on a server
OFFER: dict[str, Any] = {
    "company": "Acme",
    "industry": "marine",
    "begins": "2026-05-01",
    "locations": [{"city": "Köln", "value": "1500000.50"}, {"city": "Oslo", "value": "250000"}],
}


def submission(number: int = 1, *, broker: str = "north", **content: Any) -> Submission:
    """Return the offer in its `number`-th delivery: other delivery metadata and another order of the fields."""
    noted = datetime(2026, 1, number, 9, 30, tzinfo=UTC)
    offer = {**OFFER, **content}
    made = {
        **dict(reversed(offer.items())),
        "locations": [{"geocoded_at": noted, **location} for location in offer["locations"]],
        "envelope": {
            "broker": broker,
            "reference": f"r-{number}",
            "sent_at": noted,
            "correlation_id": f"c-{number}",
            "retry_count": number,
        },
    }
    return msgspec.convert(msgspec.to_builtins(made), Submission)


class Environment(NamedTuple):
    """A desk, its paid remote, and how to open another desk on the same store, as another process would."""

    desk: Desk
    remote: Bureau
    another: Callable[..., Desk]


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> str:
    return new_database(postgres, "submissions")


@pytest.fixture(params=["memory", "sqlite", "redis", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return shared().url()
    if request.param == "postgresql":
        return str(request.getfixturevalue("database"))
    return f"sqlite:///{tmp_path}/submissions.db" if request.param == "sqlite" else "memory://"


@pytest.fixture
def env(store: str, tmp_path: Path) -> Iterator[Environment]:
    memory = MemoryStore()
    name = next(NUMBERS)
    desks: list[Desk] = []

    def another(**choices: Any) -> Desk:
        place = memory if store == "memory://" else store
        book = QuoteTable(store, tmp_path, name=f"quotes_{name}")
        desks.append(Desk(place, remote.url, book, app=f"insurer {name}", **choices))
        return desks[-1]

    with bureau(calm=True) as remote:
        desk = another()
        desk.once.migrate()
        desk.quotes.create()
        yield Environment(desk, remote, another)
        for desk in desks:
            desk.close()


@pytest.mark.mission("B1", "B3")
def test_the_same_content_is_one_submission_from_any_sender_and_however_often(env: Environment) -> None:
    first = env.desk.process.outcome(submission(1, broker="north"))
    second = env.desk.process.outcome(submission(2, broker="south"))
    assert (first.replayed, second.replayed) == (False, True)
    assert first.key == second.key
    assert first.value == second.value
    assert first.value is not None
    assert first.value.premium == (Decimal("1750000.50") * RATES["marine"] * score_of("Acme") / 100).quantize(CENT)
    assert (len(env.desk.quotes.rows()), len(env.remote.ledger)) == (1, 1)


@pytest.mark.mission("B1", "B3")
def test_the_same_company_with_other_content_is_another_submission(env: Environment) -> None:
    other = [{"city": "Köln", "value": "1500000.51"}]
    for offer in (submission(), submission(locations=other), submission(begins="2026-05-02")):
        assert env.desk.process.outcome(offer).executed
    assert (len(env.desk.quotes.rows()), len(env.remote.ledger)) == (3, 3)


KEY = """
    import random
    from examples.submissions.desk import Desk
    from examples.submissions.quote_table import QuoteTable
    from examples.submissions.storm import SYSTEM, delivered

    offer = next(SYSTEM.events(random.Random(1)))
    desk = Desk("memory://", "http://unused", QuoteTable("memory://", "."))
    print(desk.process.key(delivered(offer)).id.hex(), desk.process_async.key(delivered(offer)).id.hex())
"""


@pytest.mark.mission("B1")
def test_the_key_is_the_same_in_every_process() -> None:
    keys = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", textwrap.dedent(KEY)]
        done = subprocess.run(command, env=env, capture_output=True, check=True, text=True, timeout=TOO_LONG)
        keys.update(done.stdout.split())
    assert len(keys) == 1


@pytest.mark.mission("B2", "B7")
def test_ten_concurrent_threads_ask_the_bureau_once(env: Environment) -> None:
    together = threading.Barrier(10)
    desks = [env.desk, env.another()]

    def deliver(number: int) -> str:
        together.wait(TOO_LONG)
        return desks[number % 2].process.outcome(submission(number + 1)).kind

    with ThreadPoolExecutor(10) as pool:
        kinds = sorted(pool.map(deliver, range(10)))
    assert kinds == ["executed"] + ["replayed"] * 9
    assert (env.remote.requests, len(env.desk.quotes.rows())) == (1, 1)


@pytest.mark.mission("B2", "B7")
def test_ten_concurrent_tasks_ask_the_bureau_once_and_threads_get_the_same_answer(env: Environment) -> None:
    async def story() -> list[str]:
        outcomes = [env.desk.process_async.outcome(submission(number + 1)) for number in range(10)]
        return sorted(outcome.kind for outcome in await asyncio.gather(*outcomes))

    assert asyncio.run(story()) == ["executed"] + ["replayed"] * 9
    assert env.desk.process.outcome(submission(11)).replayed
    assert (env.remote.requests, len(env.desk.quotes.rows())) == (1, 1)


@pytest.mark.mission("B2")
def test_different_submissions_are_worked_on_side_by_side(env: Environment) -> None:
    inside = threading.Barrier(3)
    write = env.desk.quotes.write

    def meet(submission: Submission, quote: Any) -> None:
        inside.wait(TOO_LONG)  # passes only if all three are here at the same time
        write(submission, quote)

    env.desk.quotes.write = meet  # type: ignore[method-assign]  # to see which calls are running
    with ThreadPoolExecutor(3) as pool:
        offers = [submission(begins=f"2026-06-0{day}") for day in (1, 2, 3)]
        assert all(outcome.executed for outcome in pool.map(env.desk.process.outcome, offers))


@pytest.mark.mission("B3", "B8")
def test_a_declined_submission_costs_nothing_and_is_declined_once(env: Environment) -> None:
    first, second = (env.desk.process.outcome(submission(number, industry="mining")) for number in (1, 2))
    assert first.value is not None
    assert (first.value.decision, first.value.why, second.replayed) == ("declined", "no mining", True)
    assert (env.remote.requests, len(env.desk.quotes.rows())) == (0, 1)


@pytest.mark.mission("B5")
@pytest.mark.parametrize("mode", ["threads", "tasks"])
def test_a_bureau_that_fails_is_asked_again_by_the_next_delivery_and_bills_once(env: Environment, mode: str) -> None:
    """The first request is billed, and its answer is lost; the second is refused; the third gets the first's answer."""
    answers = iter([(200, True), (503, False)])
    bill = env.remote.bill

    def unlucky(key: str, asked: dict[str, str]) -> tuple[int, dict[str, Any], bool]:
        status, answer, lost = bill(key, asked)
        ended = next(answers, (status, lost))
        return ended[0], answer, ended[1]

    env.remote.bill = unlucky  # type: ignore[method-assign]  # as often as the test wants
    outcomes = [
        env.desk.process.outcome(submission(number))
        if mode == "threads"
        else asyncio.run(env.desk.process_async.outcome(submission(number)))
        for number in (1, 2, 3, 4)
    ]
    assert [outcome.kind for outcome in outcomes] == ["failed", "failed", "executed", "replayed"]
    assert outcomes[2].attempt == 3
    assert (env.remote.requests, len(env.remote.ledger), len(env.desk.quotes.rows())) == (3, 1, 1)


@pytest.mark.mission("B4")
def test_a_submission_is_known_for_a_day(tmp_path: Path) -> None:
    clock = FakeClock()
    with bureau(calm=True) as remote:
        desk = Desk(MemoryStore(clock=clock), remote.url, QuoteTable("memory://", tmp_path))
        desk.quotes.create()
        assert desk.process.outcome(submission(1)).executed
        clock.advance(timedelta(seconds=86_399).total_seconds())
        assert desk.process.outcome(submission(2)).replayed
        clock.advance(2)
        assert desk.process.outcome(submission(3)).executed
        assert (len(desk.quotes.rows()), len(remote.ledger)) == (2, 2), "another submission by then"
        desk.close()


def amount(value: str) -> dict[str, Any]:
    return {"locations": [{"city": "Oslo", "value": value}]}


@pytest.mark.parametrize(
    "content",
    [amount("NaN"), amount("sNaN"), amount("-Infinity"), amount("-5"), {"company": ""}, {"company": "a\0b"}],
    ids=str,
)
def test_an_invalid_submission_is_refused_before_anything_is_claimed(env: Environment, content: dict[str, Any]) -> None:
    web = httpx.Client(
        transport=httpx.WSGITransport(application(env.desk, BROKERS)), base_url="http://insurer", headers=TOKEN
    )
    body = {**msgspec.to_builtins(submission()), **content}
    assert web.post(PATH, content=msgspec.json.encode(body)).status_code == httpx.codes.BAD_REQUEST
    assert web.post(PATH, content=b'{"company": ' + b"[" * 100_000).status_code == httpx.codes.BAD_REQUEST
    assert (env.desk.quotes.rows(), env.remote.ledger) == ([], [])


class Dead(BaseException):
    """Simulates the death of the process."""


@pytest.mark.mission("B3", "B5")
@pytest.mark.fault("F31", "F71")
def test_a_worker_that_dies_right_after_the_commit_leaves_the_row_and_the_record(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = env.desk.quotes.write

    def last_act(*row: Any) -> None:
        written(*row)
        raise Dead

    monkeypatch.setattr(env.desk.quotes, "write", last_act)
    with pytest.raises(Dead):
        env.desk.process.outcome(submission(1))
    monkeypatch.undo()
    outcome = env.desk.process.outcome(submission(2))
    assert outcome.replayed is env.desk.quotes.joined, "both were in one transaction, if the store has transactions"
    assert (len(env.desk.quotes.rows()), len(env.remote.ledger)) == (1, 1)


@pytest.mark.mission("B6")
def test_a_clients_key_a_content_key_and_a_business_key(env: Environment) -> None:
    brokers = {"a": "north", "b": "south"}
    app = httpx.WSGITransport(application(env.desk, brokers))
    with httpx.Client(transport=app, base_url="http://insurer") as client:

        def send(came: Submission, token: str = "Bearer a") -> httpx.Response:
            headers = {"Idempotency-Key": "order-7", "Authorization": token}
            return client.post(PATH, content=msgspec.json.encode(came), headers=headers)

        first, again = send(submission(1)), send(submission(1))
        assert (first.json()["replay"], again.headers["Idempotency-Replayed"]) == (False, "true")
        assert again.content == first.content, "exactly the answer of the first request"
        assert send(submission(2)).status_code == 422, "the client's key stands for exactly that request"
        assert send(submission(2), "Bearer b").json()["replay"], "another broker's key; but its content is known"
        assert send(submission(2), "Bearer unknown").status_code == 401
    ada = env.desk.assign("north", "r-1")
    assert env.desk.assign("north", "r-1") == ada != env.desk.assign("south", "r-1")
    assert len(env.remote.ledger) == 1


@pytest.mark.mission("B6")
def test_a_key_for_a_call_cannot_be_used_for_another_call(env: Environment) -> None:
    env.desk.once.run("given", str, 1)
    with pytest.raises(PayloadMismatch):
        env.desk.once.run("given", str, 2)


@pytest.mark.mission("B3", "B7")
def test_a_submission_over_http_and_the_same_from_a_queue_are_one(env: Environment) -> None:
    transport = httpx.WSGITransport(application(env.desk, BROKERS))
    with httpx.Client(transport=transport, base_url="http://insurer") as client:
        answer = client.post(PATH, content=msgspec.json.encode(submission(1)), headers=TOKEN).json()
        assert (answer["replay"], answer["quote"]["decision"]) == (False, "quoted")
        queue = MemoryQueue("submissions")
        for number in (2, 3):
            queue.put(msgspec.json.encode(submission(number)))
        queue.put(msgspec.json.encode(submission(4, begins="2027-01-01")))
        asyncio.run(consume_all(env.desk, queue))
        assert client.post(PATH, content=b"{}", headers=TOKEN).status_code == 400
        assert client.post(PATH, content=msgspec.json.encode(submission(1))).status_code == 401
        assert client.get(PATH).status_code == 404
    assert (len(env.remote.ledger), len(env.desk.quotes.rows())) == (2, 2)


@pytest.mark.mission("B5")
def test_a_submission_that_fails_stays_in_the_queue_and_is_processed_when_it_is_delivered_again(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    keys: list[str] = []
    bill = env.remote.bill

    def busy(key: str, asked: dict[str, str]) -> tuple[int, dict[str, Any], bool]:
        keys.append(key)
        return (503, {"error": "busy"}, False) if len(keys) < 3 else bill(key, asked)

    env.remote.bill = busy  # type: ignore[method-assign]  # as often as the test wants
    queue = MemoryQueue("submissions")
    queue.put(msgspec.json.encode(submission(1)))
    asyncio.run(consume_all(env.desk, queue))  # returns once the queue is empty
    assert (len(keys), len(set(keys)), len(env.remote.ledger), len(env.desk.quotes.rows())) == (3, 1, 1, 1)
    assert caplog.text.count("the work raised HTTPStatusError") == 2, "each failure is logged"


@pytest.mark.mission("B8")
def test_the_metric_counts_replays_separately(env: Environment) -> None:
    registry = CollectorRegistry()
    stop = prometheus.export(env.desk.once, registry, processed="submission.processed", pending=False)
    for number in (1, 2, 3):
        env.desk.process(submission(number))
    stop()
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    counted = {
        sample.labels["replay"]: sample.value for sample in samples if sample.name == "submission_processed_total"
    }
    assert counted == {"false": 1, "true": 2}


@pytest.mark.mission("B8")
@pytest.mark.finding("N54")
def test_one_submission_is_counted_once_though_its_request_has_a_key(env: Environment) -> None:
    registry = CollectorRegistry()
    stop = prometheus.export(env.desk.once, registry, **METRICS)
    transport = httpx.WSGITransport(application(env.desk, BROKERS))
    with httpx.Client(transport=transport, base_url="http://insurer", headers=TOKEN) as client:
        for number in (1, 2):
            sent = {"Idempotency-Key": f"north-{number}"}
            assert client.post(PATH, content=msgspec.json.encode(submission(number)), headers=sent).status_code == 200
    stop()
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    counted = {
        (sample.labels["scope"].rpartition("/")[2], sample.labels["replay"]): sample.value
        for sample in samples
        if sample.name == "submission_processed_total" and sample.value
    }
    assert counted == {("submission", "false"): 1, ("submission", "true"): 1}


@pytest.mark.mission("B8")
def test_too_many_replays_are_reported_and_so_is_no_replay_for_weeks(tmp_path: Path) -> None:
    clock = FakeClock()
    memory = MemoryStore(clock=clock)
    with bureau(calm=True) as remote:
        desk = Desk(memory, remote.url, QuoteTable("memory://", tmp_path))
        desk.quotes.create()
        for number in range(1, 26):
            desk.process(submission(number % 20 + 1))
        assert "submission" in verdict(desk, memory)["replay_rate"]
        said: dict[str, str] = {}
        for day in range(20):
            careless = Desk(memory, remote.url, QuoteTable("memory://", tmp_path), app="careless")
            for month in range(4):
                careless.process(submission(begins=f"2026-{month + 1:02}-{day + 1:02}", industry="mining"))
            said = verdict(careless, memory, {"no_replay_executions": 50})
            assert ("no_replay" in said) is (day >= 14), "only after two weeks without a replay"
            clock.advance("24h")
        assert "The key is probably wrong" in said["no_replay"]


def verdict(desk: Desk, memory: MemoryStore, rules: dict[str, Any] | None = None) -> dict[str, str]:
    """What the rules say, once everything that was counted is in the store."""
    desk.once.close()
    with Once(memory) as asking:
        return {broken.rule: str(broken) for broken in asking.check(rules=rules)}


def test_the_example_runs_as_its_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert [line.split("replay=")[1].split()[0] for line in said.splitlines()[:2]] == ["False", "True"]
    assert "1 executed, the others replayed" in said
    assert said.endswith("3 submissions: 3 rows in quotes, 2 charges of the bureau; 1 declined without a request\n")
