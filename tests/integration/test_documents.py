"""Mission A, as far as the core goes: each document is processed once, however often it is delivered."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AlreadyDone,
    AlreadyRunning,
    Content,
    Executed,
    LeaseLost,
    NotAcquired,
    Once,
    RecordState,
    StoreUnavailable,
    content_key,
)
from onceward.errors import StillRunning
from tests.cli.calls import until
from tests.clients import Pause, SyncClient

LOCK = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of b"test"


# ── A1: the key is the content ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A1")
def test_a_renamed_file_is_the_same_file_and_is_processed_once(client: SyncClient, tmp_path: Path) -> None:
    processed = []

    @client(key=Content("path"), window="forever")
    def process(path: Path) -> str:
        processed.append(path.name)
        return path.name

    first = tmp_path / "invoice.pdf"
    first.write_bytes(b"test")
    assert process(first) == "invoice.pdf"
    renamed = first.rename(tmp_path / "invoice (1).pdf")
    outcome = process.outcome(renamed)
    assert (outcome.replayed, outcome.value, outcome.key) == (True, "invoice.pdf", LOCK)
    renamed.write_bytes(b"another document")
    assert process.outcome(renamed).executed
    assert processed == ["invoice.pdf", "invoice (1).pdf"]


@pytest.mark.mission("A1")
def test_bytes_a_path_and_a_stream_of_the_same_content_are_the_same_document(
    client: SyncClient, tmp_path: Path
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"test")
    read: list[bytes] = []

    @client(key=Content("document"))
    def process(document: Any) -> str:
        read.append(document.read())  # the stream was rewound to its position
        return "processed"

    assert process(io.BytesIO(b"test")) == "processed"
    assert process.outcome(b"test").replayed
    assert process.outcome(path).replayed
    assert read == [b"test"]


@pytest.mark.mission("A1")
def test_a_large_file_is_hashed_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.pdf"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        key = content_key(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert key.startswith("sha256:")
    assert peak < 4 << 20


# ── A3: the lock ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A3")
def test_a_completed_document_is_skipped(client: SyncClient) -> None:
    with client.claim(LOCK) as claim:
        claim.complete({"rows": 3})
    with pytest.raises(AlreadyDone) as done, client.claim(LOCK):
        pytest.fail("ran again")
    assert done.value.value == {"rows": 3}


@pytest.mark.mission("A3", "A7")
def test_a_pending_document_is_skipped_inside_the_lease_and_taken_over_after_it(client: SyncClient) -> None:
    client.silent_owner(LOCK, note={"gcs_source_path": "gs://in/a.pdf"})
    born = client.read(LOCK).created_at
    client.clock.advance("599s")
    with pytest.raises(AlreadyRunning) as running, client.claim(LOCK, on_running="raise"):
        pytest.fail("ran while the owner was running")
    assert running.value.retry_after == pytest.approx(1, abs=0.01)
    client.clock.advance("1s")
    with client.claim(LOCK, on_running="raise", note={"gcs_output_path": "gs://out/a.pdf"}) as claim:
        assert claim.attempt == 2
    entry = client.read(LOCK)
    assert (entry.created_at, entry.claimed_at > born) == (born, True)
    assert entry.note == {"gcs_source_path": "gs://in/a.pdf", "gcs_output_path": "gs://out/a.pdf"}


@pytest.mark.mission("A3")
def test_a_failed_document_may_run_again_and_remembers_when_it_first_came(client: SyncClient) -> None:
    with pytest.raises(OSError, match="rate limited"), client.claim(LOCK):
        raise OSError("rate limited")
    born = client.read(LOCK).created_at
    client.clock.advance("1h")
    with client.claim(LOCK) as claim:
        assert claim.attempt == 2
    entry = client.read(LOCK)
    assert (entry.state, entry.created_at, entry.error) == (RecordState.COMPLETED, born, "")


@pytest.mark.mission("A3")
def test_one_of_ten_concurrent_workers_acquires_the_document(client: SyncClient) -> None:
    workers = [client, *(client.another() for _ in range(3))]

    def acquire() -> Any:
        return workers[0].silent_owner(LOCK, on_running="raise")

    for _ in range(5):
        answers = client.together(10, acquire)
        refused = [answer for answer in answers if isinstance(answer, AlreadyRunning)]
        assert len(refused) == 9, answers
        workers.append(workers.pop(0))
        client.clock.advance("601s")  # the winner stopped renewing: the next round is a race to take over


# ── A4: the lease and its heartbeat ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A4")
def test_the_lease_is_600_s_and_a_heartbeat_every_120_s_extends_it_however_long_the_work_takes(
    client: SyncClient,
) -> None:
    with client.claim(LOCK) as claim:
        for _ in range(60):  # two hours at a rate-limited model
            client.clock.advance("119s")
            client.renew_leases()
            renewed = len(client.events_named("renewed"))
            client.clock.advance("1s")
            client.renew_leases()
            assert len(client.events_named("renewed")) == renewed + 1
            entry = client.read(LOCK)
            assert (entry.lease_until - entry.updated_at).total_seconds() == 600
        claim.check()
        with pytest.raises(AlreadyRunning):
            client.another().silent_owner(LOCK, on_running="raise")
    assert client.read(LOCK).state is RecordState.COMPLETED


@pytest.mark.mission("A4")
def test_a_failed_heartbeat_is_logged_and_retried_and_never_crashes_the_work(
    client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with client.claim(LOCK) as claim:
        with client.store_trouble("renew", times=4):
            client.clock.advance("121s")
            for _ in range(4):
                client.renew_leases()
                client.clock.advance("40s")  # a retry is due within three tenths of the interval
        client.renew_leases()
        claim.check()
    warned = [record for record in caplog.records if record.message.startswith("renewal_failed")]
    assert [record.levelname for record in warned] == ["WARNING"], "once per outage; the others are counted"
    assert len(client.events_named("renewal_failed")) == 4
    assert len(client.events_named("renewed")) == 1
    assert client.read(LOCK).state is RecordState.COMPLETED


@pytest.mark.mission("A4", "A7")
def test_the_heartbeat_of_a_replaced_owner_does_not_extend_another_owners_lock(client: SyncClient) -> None:
    client.silent_owner(LOCK)
    client.clock.advance("601s")
    client.another().silent_owner(LOCK)
    before = client.read(LOCK).lease_until
    client.clock.advance("120s")
    client.renew_leases()  # of the first one
    assert client.read(LOCK).lease_until == before
    assert (len(client.events_named("lost")), len(client.events_named("renewed"))) == (1, 0)
    assert client.leases() == 0


# ── A5: the block ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A5")
def test_a_block_that_ends_well_is_completed_and_one_that_raises_is_failed_with_the_message(client: SyncClient) -> None:
    with client.claim("good"):
        pass
    with pytest.raises(ValueError, match="no invoice number"), client.claim("bad"):
        raise ValueError("no invoice number")
    good, bad = client.read("good"), client.read("bad")
    assert (good.state, good.error, good.value) == (RecordState.COMPLETED, "", None)
    assert (bad.state, bad.error) == (RecordState.FAILED, "ValueError: no invoice number")
    assert client.leases() == 0


@pytest.mark.mission("A5")
def test_every_refused_claim_raises_its_own_subclass_of_not_acquired(client: SyncClient) -> None:
    client.silent_owner("held")
    with client.claim("done"):
        pass
    for key, settings, reason in (
        ("held", {"on_running": "raise"}, AlreadyRunning),
        ("held", {"wait": "20ms"}, StillRunning),
        ("done", {}, AlreadyDone),
    ):
        with pytest.raises(NotAcquired) as refused, client.claim(key, **settings):
            pytest.fail("ran")
        assert type(refused.value) is reason
        assert refused.value.key == key


@pytest.mark.mission("A5")
def test_a_block_whose_claim_was_lost_changes_nothing_and_raises(client: SyncClient) -> None:
    with pytest.raises(LeaseLost), client.claim(LOCK):
        client.clock.advance("601s")
        client.another().silent_owner(LOCK, note={"by": "the other"})
    entry = client.read(LOCK)
    assert (entry.state, entry.attempt, entry.note) == (RecordState.PENDING, 2, {"by": "the other"})


# ── A7: the edge cases ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("A7")
def test_a_duplicate_after_the_lease_runs_only_if_the_heartbeat_had_stopped(client: SyncClient) -> None:
    other = client.another()
    client.silent_owner("beats")
    other.silent_owner("silent")
    for _ in range(6):
        client.clock.advance("120s")
        client.renew_leases()
    with pytest.raises(AlreadyRunning):
        other.silent_owner("beats", on_running="raise")
    assert client.silent_owner("silent", on_running="raise").attempt == 2


@pytest.mark.mission("A7")
def test_a_resource_that_remembers_the_token_refuses_the_late_owners_write(client: SyncClient) -> None:
    output: dict[str, Any] = {"token": 0}

    def write(claim: Any, text: str) -> bool:
        if claim.token < output["token"]:
            return False
        output.update(token=claim.token, text=text)
        return True

    late = client.silent_owner(LOCK)
    client.clock.advance("601s")
    winner = client.another().silent_owner(LOCK)
    assert write(winner, "winner's")
    assert not write(late, "late")
    assert output["text"] == "winner's"


@pytest.mark.mission("A7")
def test_while_the_store_is_down_nothing_runs_unless_that_was_chosen(
    client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    @client(key="doc:{document}", name="closed")
    def closed(document: str) -> None:
        ran.append("closed")

    @client(key="doc:{document}", name="open", on_store_down="run")
    def opened(document: str) -> str:
        ran.append("open")
        return "processed"

    client.read("opens the store")
    with client.store_trouble("claim"):
        with pytest.raises(StoreUnavailable):
            closed("a.pdf")
        outcome = opened.outcome("a.pdf")
    assert (type(outcome), outcome.reason, outcome.value) == (Executed, "unprotected", "processed")
    assert ran == ["open"]
    logged = [record for record in caplog.records if record.message.startswith("unprotected")]
    assert [(record.levelno, "doc:a.pdf" in record.message) for record in logged] == [(logging.ERROR, True)]
    closed("a.pdf")
    assert ran == ["open", "closed"]


CRASHING_WORKER = """
    import sys, time
    from onceward import Once, current_claim

    once = Once(sys.argv[1], lease="2s")
    with once.claim("doc") as claim:
        print("claimed", flush=True)
        time.sleep(60)
"""


def lease_until(once: Once, key: str) -> datetime:
    entry = once.read(key)
    assert entry is not None
    assert entry.lease_until is not None
    return entry.lease_until


@pytest.mark.mission("A7", "A3")
def test_a_worker_that_is_killed_is_replaced_once_its_lease_has_lapsed_and_not_before(tmp_path: Path) -> None:
    """A real process, killed without a chance to clean up, in real time."""
    url = f"sqlite:///{tmp_path / 'once.db'}"
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CRASHING_WORKER), url], stdout=subprocess.PIPE, text=True
    )
    with worker, Once(url) as once:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "claimed\n"
        first = lease_until(once, "doc")
        until(lambda: lease_until(once, "doc") > first + timedelta(seconds=2))  # its heartbeat is alive
        with pytest.raises(AlreadyRunning), once.claim("doc", on_running="raise"):
            pytest.fail("ran while the owner was alive")
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        killed = time.monotonic()
        with once.claim("doc", wait="60s") as claim:
            waited = time.monotonic() - killed
            assert claim.attempt == 2
        assert waited < 20
        entry = once.read("doc")
        assert entry is not None
        assert entry.state is RecordState.COMPLETED


@pytest.mark.mission("A7")
def test_a_duplicate_that_waits_gets_the_result_instead_of_running(client: SyncClient) -> None:
    pause, ran = Pause(), []

    def process(document: str) -> str:
        ran.append(document)
        pause.here()
        return f"rows of {document}"

    owner = client.start(client.outcome, LOCK, process, "a.pdf")
    pause.reached()
    duplicate = client.start(client.another().outcome, LOCK, process, "a.pdf")
    pause.go()
    assert (owner.result().executed, duplicate.result().replayed) == (True, True)
    assert duplicate.result().value == "rows of a.pdf"
    assert ran == ["a.pdf"]
