"""The documents in storms, on an embedded store and on a server; without a guard the same storm shows duplicates."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from examples.documents.samples import BLOCKED, pdf
from examples.documents.storm import SYSTEM as SYSTEM_ITSELF
from examples.documents.storm import StormDatabase, printed_facts
from onceward import content_key
from onceward.testing.storm import Plan, StormSetting, storm

SYSTEM = "examples.documents.storm:SYSTEM"


@pytest.mark.mission("A1", "A3", "A6", "A7")
@pytest.mark.fault("F30", "F71")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_storm_leaves_one_file_and_one_row_a_document(request: pytest.FixtureRequest, kind: str) -> None:
    store = request.getfixturevalue("postgres").url if kind == "postgres" else ""
    run = storm(SYSTEM, Plan(deliveries=80, workers=2, kills=4, pauses=1, store=store))
    audit = run.audit
    assert audit.passed, audit
    assert audit.effects == audit.expected > 40
    assert (run.score.killed, run.score.paused, run.score.acknowledged) == (4, 1, 80)
    assert audit.counted["model calls"] >= audit.expected / 2
    assert audit.counted["refusals (429) of the models' API"] > 0


@pytest.mark.mission("A6")
def test_without_a_guard_the_same_storm_shows_duplicates_and_pays_for_them() -> None:
    run = storm(SYSTEM, Plan(deliveries=40, workers=2, kills=0, guarded=False))
    assert not run.audit.passed
    assert run.audit.duplicates
    assert run.audit.counted["model calls wasted"] > 0


@pytest.mark.mission("A6")
@pytest.mark.parametrize(
    ("how", "seen"),
    [
        ("", ()),
        ("UPDATE documents SET cents = 7", ("wrong",)),
        ("UPDATE documents SET date = '2026-01-01'", ("wrong",)),
        ("UPDATE documents SET file = 'other.pdf'", ("wrong",)),
        ("DELETE FROM documents", ("lost",)),
        ("INSERT INTO documents SELECT * FROM documents", ("duplicates",)),
    ],
)
def test_the_audit_sees_what_a_row_says(tmp_path: Path, how: str, seen: tuple[str, ...]) -> None:
    setting = StormSetting(folder=str(tmp_path), run="r1")
    (event,) = islice(SYSTEM_ITSELF.events(Random(1)), 1)
    content = pdf(event.body)
    number, date, cents = printed_facts(event.body) or ("", "", 0)
    with StormDatabase(setting).create(unique=False):
        (tmp_path / "bucket").mkdir()
        (tmp_path / "calls").touch()
        file = f"{number}_Acme_{date}.pdf"
        (tmp_path / "bucket" / file).write_bytes(content)
        row = (content_key(content), number, "Acme", date, cents, file)
        StormDatabase(setting).query("INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?)", row)
        if how:
            StormDatabase(setting).query(how)
        audit = SYSTEM_ITSELF.audit(setting, [event])
    assert tuple(name for name in ("duplicates", "lost", "wrong") if getattr(audit, name)) == seen


@pytest.mark.mission("A6")
@pytest.mark.fault("F30")
def test_a_file_that_a_replaced_owner_left_behind_is_counted_apart_and_any_other_is_wrong(tmp_path: Path) -> None:
    setting = StormSetting(folder=str(tmp_path), run="r1")
    event = next(one for one in SYSTEM_ITSELF.events(Random(1)) if f"Company {BLOCKED}" in one.body)
    with SYSTEM_ITSELF.open(setting) as services:
        setting = replace(setting, services=services)
        assert SYSTEM_ITSELF.worker(setting)(event).kind == "rejected", "its file was deleted again"
        late = tmp_path / "bucket" / "late.pdf"
        late.write_bytes(pdf(event.body))
        os.utime(late, (time.time() + 1, time.time() + 1))  # file times are coarser than record times
        audit = SYSTEM_ITSELF.audit(setting, [event])
        assert audit.passed, audit
        assert audit.counted["files of owners that had been replaced"] == 1
        with closing(sqlite3.connect(tmp_path / "once.db")) as records, records:
            records.execute("UPDATE onceward_records SET updated_at = updated_at + 3600000000")
        audit = SYSTEM_ITSELF.audit(setting, [event])
        assert list(audit.wrong) == [f"{event.id}: file: no event caused this effect"], (
            "it was there before it was settled"
        )
