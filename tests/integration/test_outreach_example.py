"""examples/outreach: the requirements of the seed document and its own test cases, with real mails and files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from examples.outreach.app import Outreach
from tests.integration.outreach_cases import HERE, ROOT, env, mail, together
from tests.integration.outreach_environment import ANNA, BORIS, Environment

__all__ = ["env"]  # fixtures, re-exported so that pytest finds them


# ── the document's own test cases ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C1")
def test_should_not_send_duplicate_emails(env: Environment) -> None:
    outreach = env.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    assert outreach.send_email(prospect)["sent"] is True
    second = outreach.send_email(prospect)
    assert second["skipped"] is True
    assert second["reason"] == "already_emailed_today"
    assert env.rows(f"SELECT count(*) FROM emails WHERE prospect_id = '{prospect}'") == [1]
    assert env.kept("SELECT recipient FROM mails") == [ANNA["email"]]


@pytest.mark.mission("C1")
def test_should_handle_concurrent_sends_gracefully(env: Environment) -> None:
    workers = [env.worker() for _ in range(3)]
    prospect = workers[0].import_prospect(**ANNA)["id"]
    results = together([lambda worker=worker: worker.send_email(prospect) for worker in workers])  # type: ignore[misc]  # binds the loop's value
    assert len([result for result in results if result.get("sent")]) == 1
    assert len(results) == 3
    assert env.rows("SELECT count(*) FROM emails") == [1]
    assert len(env.kept("SELECT 1 FROM mails")) == 1


# ── C7, C8, C9: upserts, charges, windows ───────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C7", "C10")
def test_everything_delivered_again_changes_no_column_of_any_table(env: Environment) -> None:
    def deliver(outreach: Outreach) -> None:
        for who in (ANNA, BORIS):
            id = outreach.import_prospect(**who)["id"]
            outreach.enrich(id, "website")
            outreach.send_email(id)
        outreach.receive(mail())
        outreach.charge("acme", 7, 1900)
        outreach.cron.tick("2026-01-01T08:05:00Z")

    env.clock.advance("8h5m")
    deliver(env.worker())
    contents = [f"SELECT * FROM {table} ORDER BY 1, 2" for table in ("prospects", "emails", "enrichments", "runs")]
    before = [env.rows(statement) for statement in contents]
    env.clock.advance("1h")
    deliver(env.worker())
    assert [env.rows(statement) for statement in contents] == before
    assert all(before)


@pytest.mark.mission("C3", "C4", "C6")
def test_rows_and_the_record_of_their_work_are_committed_together(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is killed right after a commit has written both: check the rows right after each commit."""
    outreach = env.worker()
    prospect = outreach.import_prospect(**ANNA)["id"]
    env.clock.advance("8h5m")
    transaction, done = outreach.people.transaction, list[str]()

    @contextmanager
    def watched() -> Iterator[Any]:
        with transaction() as tx:
            yield tx
        done[:] = env.rows("SELECT key FROM onceward_records WHERE state IS NULL")

    monkeypatch.setattr(outreach.people, "transaction", watched)
    outreach.receive(mail())
    assert "reply:<a@b.example>" in done
    outreach.enrich(prospect, "website")
    assert f"enrich:{prospect}:website" in done
    outreach.cron.tick()
    assert "2026-01-01T08:05Z" in done


@pytest.mark.mission("C8")
def test_a_charge_that_is_tried_again_is_the_same_charge(env: Environment) -> None:
    outreach = env.worker()
    env.outside.loses_answers = True
    with pytest.raises(httpx.RemoteProtocolError):
        outreach.charge("acme", 7, 1900)
    env.outside.loses_answers = False
    env.clock.advance("2d")  # the provider's webhook is redelivered late: no clock in the key
    receipt = env.worker().charge("acme", 7, 1900)
    assert outreach.charge("acme", 7, 1900) == receipt
    assert outreach.charge("acme", 8, 1900) != receipt
    assert env.kept("SELECT asked FROM charges ORDER BY asked") == [1, 2]


@pytest.mark.mission("C9")
def test_its_windows_are_declared_in_one_table_that_the_command_lists(env: Environment) -> None:
    assert env.worker().windows() == [
        ("email", "lasting 1d", "email:{prospect_id}"),
        ("enrich", "lasting 1d since the attempt", "enrich:{prospect_id}:{type}"),
        ("reply", "forever", "reply:{message_id}"),
        ("notify", "forever", "notify:{reply_id}"),
        ("charge", "lasting 1w", "charge:{customer}:{invoice}"),
        ("cron", "lasting 1w1d10m", "cron:*/5 8-18 * * 1-6:{scheduled_at}"),
        ("import", "forever", "import:{email} or import:{name}:{city}"),
    ]
    run = subprocess.run(
        [sys.executable, "-m", "onceward.cli", "operations"], cwd=HERE, capture_output=True, text=True, check=True
    )
    assert {one["name"] for one in json.loads(run.stdout)} == {"email", "enrich", "reply", "notify", "charge"}


@pytest.mark.mission("C9")
def test_the_keys_in_the_store_are_those_of_the_table(env: Environment) -> None:
    outreach = env.worker()
    id = outreach.import_prospect(**ANNA)["id"]
    outreach.send_email(id)
    outreach.enrich(id, "website")
    outreach.receive(mail())
    outreach.charge("acme", 7, 1900)
    keys = env.rows("SELECT key FROM onceward_records ORDER BY coalesce(created_at, token), key")
    assert {f"email:{id}", f"enrich:{id}:website", "reply:<a@b.example>", "charge:acme:7"} < set(keys)


@pytest.mark.mission("C1", "C3", "C4")
def test_each_duplicate_is_logged_with_its_key(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    outreach = env.worker()
    id = outreach.import_prospect(**ANNA)["id"]
    env.clock.advance("8h5m")
    with caplog.at_level("INFO", "onceward"):
        for _ in range(2):
            outreach.cron.tick()
            outreach.receive(mail())
        outreach.send_email(id)
    skipped = [one.message for one in caplog.records if one.message.startswith("skipped ")]
    for key in (f"email:{id} ", "reply:<a@b.example> ", "2026-01-01T08:05Z ["):
        assert any(key in line for line in skipped), (key, skipped)


# ── C10: the audit ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C10")
def test_a_morning_with_everything_twice_passes_all_sixteen_lines() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "examples.outreach"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    first, second = run.stdout.split("second delivery")
    assert "email     {'skipped': True, 'reason': 'already_emailed_today'}" in first
    assert "reply1    {'processed': True}" in first
    assert "reply1    {'duplicate': True}" in second
    assert "reply3    {'processed': True}" in second
    assert "import    nothing to do" in second
    assert run.stdout.count("✓") == 16
    assert "mails    4\ncharges  1\nalerts   4\n" in run.stdout
