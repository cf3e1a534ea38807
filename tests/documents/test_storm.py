"""The documents in storms, on an embedded store and on a server; without a guard the same storm shows duplicates."""

from __future__ import annotations

import pytest

from onceward.testing.storm import Plan, storm

SYSTEM = "examples.documents.storm:SYSTEM"


@pytest.mark.mission("A1", "A3", "A6", "A7")
@pytest.mark.fault("F30", "F71")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_storm_leaves_one_file_and_one_row_a_document(request: pytest.FixtureRequest, kind: str) -> None:
    store = request.getfixturevalue("postgres").url if kind == "postgres" else ""
    run = storm(SYSTEM, Plan(deliveries=80, workers=2, kills=4, store=store))
    audit = run.audit
    assert audit.passed, audit
    assert audit.effects == audit.expected > 40
    assert (run.score.killed, run.score.acknowledged) == (4, 80)
    assert audit.counted["model calls"] >= audit.expected / 2
    assert audit.counted["refusals (429) of the models' API"] > 0


@pytest.mark.mission("A6")
def test_without_a_guard_the_same_storm_shows_duplicates_and_pays_for_them() -> None:
    run = storm(SYSTEM, Plan(deliveries=40, workers=2, kills=0, guarded=False))
    assert not run.audit.passed
    assert run.audit.duplicates
    assert run.audit.counted["model calls wasted"] > 0
