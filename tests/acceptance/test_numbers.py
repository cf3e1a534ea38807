"""The numbers of the five documents that other tests do not pin: each on both sides."""

from __future__ import annotations

import math
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.documents.__main__ import LEASE
from examples.fleet.app import KEEP
from onceward import Once
from onceward.people.similarity import Comparison, Similarity
from tests.acceptance.numbers import NUMBERS, ROOT, Number, functions_of
from tests.integration.outreach_environment import ANNA, Paused, opened


@pytest.mark.finding("N58")
@pytest.mark.mission("C1")
def test_a_mail_that_is_being_sent_holds_its_lock_for_300_seconds(tmp_path: Path) -> None:
    with opened(tmp_path, Paused) as env:
        assert isinstance(env.outside, Paused)
        outreach = env.worker()
        prospect = outreach.import_prospect(**ANNA)["id"]
        sending = threading.Thread(target=outreach.send_email, args=(prospect,))
        sending.start()
        env.outside.pause.reached()
        entry = outreach.once.read(f"email:{prospect}", name="email")
        env.outside.pause.go()
        sending.join(60)
    assert entry is not None
    assert entry.lease_until is not None
    assert entry.lease_until - entry.updated_at == timedelta(seconds=300)


@pytest.mark.finding("N58")
@pytest.mark.mission("C5")
@pytest.mark.parametrize(("confidence", "action"), [(0.9, "created"), (math.nextafter(0.9, 1), "updated")])
def test_a_similar_prospect_is_updated_only_above_a_confidence_of_90_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, confidence: float, action: str
) -> None:
    compare = Similarity.compare

    def compare_as(self: Similarity, *forms: Any) -> Comparison:
        return compare(self, *forms)._replace(confidence=confidence)

    monkeypatch.setattr(Similarity, "compare", compare_as)
    with opened(tmp_path) as env:
        outreach = env.worker()
        outreach.import_prospect(email="anna@osterholt.example", name="Anna Osterholt", city="Bremen", country="DE")
        found = outreach.import_prospect(name="Anna Osterholt", city="Bremen", country="DE")
    assert found["action"] == action


@pytest.mark.finding("N58")
@pytest.mark.mission("A4", "E7")
def test_a_document_is_locked_for_600_seconds_and_a_message_is_known_for_7_days() -> None:
    with Once("memory://", lease=LEASE) as once, once.claim("document") as claim:
        entry = once.read("document")
        assert entry is not None
        assert entry.lease_until is not None
        assert entry.lease_until - entry.updated_at == timedelta(seconds=600)
        claim.complete()
    with Once("memory://") as once:
        state = once.state("services", window=KEEP)
        state.apply("a", ("2025-03-01T08:00:00Z", None, None, "m1"), 1)
        known = state.known("a", message_id="m1")
    assert known is not None
    assert known.expires_at - known.created_at == timedelta(days=7)


@pytest.mark.finding("N58")
@pytest.mark.parametrize("number", NUMBERS, ids=lambda one: one.what)
def test_each_number_is_where_the_list_says_and_its_test_exists(number: Number) -> None:
    """`python -m tests.acceptance.numbers` changes each of them and runs its test, which must fail."""
    assert (ROOT / number.file).read_text(encoding="utf-8").count(number.now) == 1, "it must occur once"
    assert number.now != number.changed
    path, _, name = number.test.partition("::")
    assert name.partition("[")[0] in functions_of(ROOT / path)
