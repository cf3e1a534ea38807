"""Slow documents, stores that are down, and what the log and the rules report about them (mission A4, A7–A9)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from examples.documents.__main__ import HEARTBEAT, LEASE, main
from onceward import ConfigurationError, Once, StoreUnavailable
from onceward.testing import FakeClock
from tests.clients import TOO_LONG, Backend, SyncClient
from tests.documents.pipeline_worker import CHEAP, FILE, HASH, PDF, api, invoice, start_worker
from tests.moved_time import in_thread


@pytest.fixture
def backend(tmp_path: Path, clock: FakeClock) -> Backend:
    """One store: these tests do not depend on it. The other stores have their own tests, storms and kills."""
    return Backend("memory", tmp_path, clock)


@pytest.fixture
def client(backend: Backend) -> Iterator[SyncClient]:
    """A client with fake time, whose heartbeat runs only when a test asks for it."""
    with closing(SyncClient(backend, app="documents", counters=True)) as client:
        yield client


def during(work: Callable[[], object]) -> api.Rules:
    """Return a model that answers correctly after this call."""

    def rules(model: str, turns: list[str]) -> str:
        work()
        return api.rules(model, turns)

    return rules


# ── A4: the heartbeat ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A4", "A7")
def test_a_model_may_take_hours_because_the_lease_of_600_s_is_extended_every_120_s(
    tmp_path: Path, client: SyncClient
) -> None:
    results: list[str] = []

    def two_hours() -> None:
        for _ in range(60):
            client.clock.advance("110s")  # real time passes, too, while the machine is busy
            client.renew_leases()
            before = len(client.events_named("renewed"))
            client.clock.advance("10s")
            client.renew_leases()
            results.append(f"{len(client.events_named('renewed')) - before}")
            entry = client.read(HASH, name="processed_documents")
            assert (entry.lease_until - entry.updated_at).total_seconds() == 600
        results.append(beside.deliver(name="again.pdf").kind)

    with start_worker(tmp_path, client.once, rules=during(two_hours)) as worker:
        beside = worker.another(client.another(app="documents").once)
        assert worker.deliver().executed
        assert results == ["1"] * 60 + ["running"]
        assert (worker.calls(), worker.files(), worker.rows()) == ([CHEAP], {FILE: PDF}, [(HASH, FILE)])


@pytest.mark.mission("A4")
def test_a_document_is_renewed_120_seconds_after_it_was_claimed() -> None:
    with Once("memory://", lease=LEASE, heartbeat=HEARTBEAT) as once, once.claim("document"):
        [held] = once.heartbeat.held()
        assert held.ends - held.renew_at == pytest.approx(600 - 120, abs=0.001)


@pytest.mark.mission("A4")
def test_the_heartbeat_does_not_depend_on_the_lease(tmp_path: Path) -> None:
    """Real time. A fifth of this lease would be more than a day."""
    beats = threading.Semaphore(0)

    def blocked() -> None:
        for _ in range(2):
            assert beats.acquire(timeout=TOO_LONG)

    with (
        Once("memory://", app="documents", lease="7d", heartbeat="100ms") as once,
        start_worker(tmp_path, once, rules=during(blocked)) as worker,
    ):
        once.subscribe(lambda event: beats.release() if event.name == "renewed" else None)
        assert worker.deliver().executed


def test_a_heartbeat_that_is_too_long_for_the_lease_is_refused(tmp_path: Path) -> None:
    for heartbeat in ("31s", "2m"):
        with pytest.raises(ConfigurationError, match=r"cannot renew a lease of 1m reliably.*half of the lease"):
            main(["demo", str(tmp_path), "--lease", "60s", "--heartbeat", heartbeat])


@pytest.mark.mission("A4", "A7")
def test_a_model_that_really_blocks_for_longer_than_the_lease_is_asked_once(tmp_path: Path) -> None:
    """Real time and a real heartbeat; the duplicate comes after more than a whole lease."""
    answer, beats = threading.Event(), threading.Semaphore(0)
    url = f"sqlite:///{tmp_path}/once.db?synchronous=NORMAL"
    with (
        Once(url, app="documents", lease="2s") as once,
        Once(url, app="documents", lease="2s") as other,
        start_worker(tmp_path, once, rules=during(lambda: answer.wait(TOO_LONG))) as worker,
    ):
        once.subscribe(lambda event: beats.release() if event.name == "renewed" else None)
        first = in_thread(worker.deliver)
        for _ in range(6):  # a fifth of the lease each
            assert beats.acquire(timeout=TOO_LONG)
        duplicate = worker.another(other).deliver(name="again.pdf")
        answer.set()
        assert (duplicate.kind, first.result(TOO_LONG).kind) == ("running", "executed")
        assert (worker.calls(), worker.files(), worker.rows()) == ([CHEAP], {FILE: PDF}, [(HASH, FILE)])


@pytest.mark.mission("A1", "A3")
def test_a_document_of_last_year_is_known(tmp_path: Path, client: SyncClient) -> None:
    with start_worker(tmp_path, client.once) as worker:
        assert worker.deliver().executed
        client.clock.advance("400d")
        assert (worker.deliver(name="again.pdf").kind, worker.calls()) == ("replayed", [CHEAP])


# ── A7: edge cases ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A7")
@pytest.mark.fault("F32")
def test_an_owner_that_comes_back_late_writes_nothing_more_and_asks_no_more(
    tmp_path: Path, client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """It stopped renewing during the model call; another worker took over and finished before the answer came."""
    kinds: list[str] = []
    silent = threading.Event()

    def fall_silent() -> None:
        if not silent.is_set():
            silent.set()
            client.clock.advance("601s")
            kinds.append(beside.deliver(printed, "again.pdf").kind)

    printed = invoice(date="01.03.2026")  # the cheap model has to be asked twice
    with start_worker(tmp_path, client.once, rules=during(fall_silent)) as worker:
        beside = worker.another(client.another(app="documents").once)
        late = worker.deliver(printed)
        assert (kinds, late.kind) == (["executed"], "unknown")
        assert worker.calls() == [CHEAP] * 3, "two by the new owner, one by the late owner"
        assert (list(worker.files().values()), len(worker.rows())) == ([printed], 1)
        assert worker.record(late.key)["status"] == "COMPLETED"
        assert ("lock_lost", "ERROR", late.key) in [line[:3] for line in logged(caplog)]


@pytest.mark.mission("A7", "A9")
@pytest.mark.fault("F50")
def test_while_the_store_is_away_nothing_runs_unless_that_was_chosen_and_then_it_is_listed_for_a_person(
    tmp_path: Path, client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    listed = tmp_path / "for-a-person.txt"
    with start_worker(tmp_path, client.once) as closed:
        reckless = client.another(app="documents").once
        bold = closed.another(reckless, on_store_down="run", unprotected_list=listed)
        client.read("opens the store")
        with client.store_trouble("claim"):
            with pytest.raises(StoreUnavailable):
                closed.deliver()
            assert (closed.calls(), closed.files(), listed.exists()) == ([], {}, False)
            outcome = bold.deliver()
        assert (outcome.kind, outcome.reason) == ("executed", "unprotected")
        assert listed.read_text().startswith(f"{HASH} store down: ")
        loud = [one for one in caplog.records if one.name == "documents" and one.levelno == logging.ERROR]
        assert [(vars(one)["event"], vars(one)["doc_hash"]) for one in loud] == [("processed_unprotected", HASH)]
        assert closed.deliver(name="again.pdf").executed, "the unprotected run left no record"
        assert (closed.files(), closed.rows()) == ({FILE: PDF}, [(HASH, FILE)]), "but the file and the row are the same"


# ── A8: rules ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A8")
def test_the_rules_report_claims_without_an_answer_failed_heartbeats_and_stale_locks(
    tmp_path: Path, client: SyncClient
) -> None:
    """Each rule fires only beyond its threshold: 10 and 5 in an hour, 3 records."""

    def broken() -> list[str]:
        client.once.counters.write()
        return [one.rule for one in client.once.check()]

    def failing_heartbeats() -> None:
        for times in (5, 1):
            with client.store_trouble("renew", times=times):
                for _ in range(times):
                    client.clock.advance("121s")
                    client.renew_leases()
            client.renew_leases()
            seen.append(broken())

    seen: list[list[str]] = []
    with start_worker(tmp_path, client.once, rules=during(failing_heartbeats)) as worker:
        for times in (10, 1):
            with client.store_trouble("claim"):
                for _ in range(times):
                    with pytest.raises(StoreUnavailable):
                        worker.deliver()
            seen.append(broken())
        client.clock.advance("3h")
        assert worker.deliver().executed
        client.clock.advance("3h")
        for number in range(4):
            client.silent_owner(f"sha256:{number}", name="processed_documents")
            client.clock.advance("31m")
            seen.append(broken())
    assert seen == [[], ["claim_errors"], [], ["renewal_failures"], [], [], [], ["old_pending"]]


# ── A9: the log ─────────────────────────────────────────────────────────────────────────────────────────────────────


Line = tuple[str, str, str, str]


def logged(caplog: pytest.LogCaptureFixture) -> list[Line]:
    """Return event, level, hash and status of each log line."""
    records = [one for one in caplog.records if one.name == "documents"]
    caplog.clear()
    return [(vars(one)["event"], one.levelname, vars(one)["doc_hash"], vars(one)["status"]) for one in records]


@pytest.mark.mission("A9")
def test_the_log_of_a_document(tmp_path: Path, client: SyncClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "documents")

    def a_while() -> None:
        client.clock.advance("121s")
        with client.store_trouble("renew", times=1):
            client.renew_leases()
        client.clock.advance("40s")
        client.renew_leases()

    with start_worker(tmp_path, client.once, rules=during(a_while)) as worker:
        worker.deliver()
        assert logged(caplog) == [
            ("lock_acquired", "INFO", HASH, "PENDING"),
            ("heartbeat_failed", "WARNING", HASH, ""),
            ("heartbeat_extended", "DEBUG", HASH, ""),
            ("lock_released", "INFO", HASH, "COMPLETED"),
        ]
        worker.deliver(name="again.pdf")
        assert logged(caplog) == [("lock_skipped_duplicate", "INFO", HASH, "COMPLETED")]
        unreadable = worker.deliver(invoice(id="")).key
        assert [line for line in logged(caplog) if "heartbeat" not in line[0]] == [
            ("lock_acquired", "INFO", unreadable, "PENDING"),
            ("lock_released", "WARNING", unreadable, "FAILED"),
        ]
