"""Pages of features: schedules, sagas, latest states, people and imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward import Once
from onceward.latest import Ordering
from onceward.people import People
from onceward.sagas import Step, StepContext
from tests.console.shop import attempt
from tests.console.visitor import Visitor, console_of
from tests.people_backends import record


@pytest.fixture
def once(tmp_path: Path) -> Once:
    return Once(f"sqlite:///{tmp_path / 'shop.db'}?synchronous=NORMAL", app="shop", counters=True)


def test_a_schedule_is_shown_paused_resumed_and_run(once: Once) -> None:
    @once.schedule("0 3 * * *", tz="Europe/Berlin", name="nightly")
    def nightly() -> None: ...

    visitor = Visitor(console_of(once))
    [row] = visitor.json("/schedules?format=json")["schedules"]
    assert (row["name"], row["pattern_text"], row["state"]) == ("nightly", "at 03:00 every day", "new")
    assert "Latest slots" in visitor.get("/schedules/nightly").text

    def act(verb: str, why: str = "maintenance") -> str:
        form = {"name": "nightly", "why": why, "back": "/schedules/nightly"}
        answer = visitor.post(f"/schedules-action/{verb}", form)
        assert answer.headers["location"] == "/schedules/nightly"
        return visitor.get("/schedules/nightly").text

    assert "a reason is needed" in act("pause", why="")
    assert "nightly is paused" in act("pause")
    assert "was already paused" in act("pause")
    assert visitor.json("/schedules?format=json")["schedules"][0]["state"] == "paused"
    assert "nightly runs again" in act("resume")
    assert "a runner will start it now" in act("run")
    assert [entry.verb for entry in once.audit()] == ["run-now", "resume", "pause"]
    assert visitor.post("/schedules-action/explode", {"name": "nightly", "why": "x"}).status_code == 404
    assert visitor.post("/schedules-action/run", {"name": "none", "why": "x"}).status_code == 409
    assert visitor.get("/schedules/none").status_code == 404


def test_a_saga_shows_its_steps_and_what_blocks_it(once: Once) -> None:
    def reserve(step: StepContext) -> int:
        return 1

    def charge(step: StepContext) -> None:
        raise TimeoutError("no answer from the bank")

    booking = once.saga(
        "booking",
        Step("reserve", reserve, undo=reserve),
        Step("charge", charge, kind="pivot", after_crash="park"),
        key="booking:{n}",
    )
    attempt(lambda n: booking(n=n), 1)
    visitor = Visitor(console_of(once))
    [row] = visitor.json("/sagas?format=json")["sagas"]
    assert (row["key"], row["blocked_by"], row["steps"]) == ("booking:1", "charge", "✓ reserve → … charge")
    page = visitor.get(f"/keys/{row['id']}").text
    assert "Steps of the saga" in page
    assert "Undo the saga" in page
    assert visitor.json("/sagas?format=json&state=COMPLETED")["sagas"] == []


def test_latest_states_are_listed_and_their_values_only_on_request(once: Once) -> None:
    trucks = once.state("trucks")
    trucks.apply("truck 7", Ordering("2026-03-01T12:00:00Z", message_id="m1"), {"at": "Potsdam", "token": "x1"})
    visitor = Visitor(console_of(once))
    assert "Potsdam" not in visitor.get("/states?scope=shop%2Ftrucks").text
    [row] = visitor.json("/states?scope=shop%2Ftrucks&show=values&format=json")["entities"]
    assert (row["entity"], row["value"]) == ("truck 7", '{"at": "Potsdam", "token": "***"}')


def test_people_are_reviewed_and_imports_are_listed(once: Once, tmp_path: Path) -> None:
    with People(f"sqlite:///{tmp_path / 'people.db'}") as people:
        people.add(record("csv", "1", name="Anna Schmidt", city="Berlin", country="DE"))
        people.add(record("crm", "2", name="Ana Schmidt", city="Berlin", country="DE"))
        visitor = Visitor(console_of(once, people=people))
        [review] = visitor.json("/people?format=json")["reviews"]
        assert "The same person" in visitor.get("/people").text
        form = {name: review[name] for name in ("one", "other", "seen")} | {"answer": "same", "back": "/people"}
        visitor.post("/people/answer", form)
        assert "are one person" in visitor.get("/people").text
        assert len(people) == 1
        assert visitor.json("/imports?format=json")["imports"] == []


def test_a_question_about_people_shows_its_evidence(once: Once, tmp_path: Path) -> None:
    """The page shows what `onceward review` shows: how each field compares, its weight, and the reason."""
    with People(f"sqlite:///{tmp_path / 'people.db'}") as people:
        born = {"surname": "Sharma", "date_of_birth": "2004-05-06", "city": "Berlin"}
        people.add(record("csv", "1", **born, given_name="Tanvir"))
        asked = people.add(record("csv", "2", **born, given_name="Tanvar", Team="<b>"))
        visitor = Visitor(console_of(once, people=people))
        page, [review] = visitor.get("/people").text, visitor.json("/people?format=json")["reviews"]
        assert asked.reason == review["reason"]
        assert asked.reason in page
        assert [(one["field"], one["level"]) for one in review["evidence"]] == [
            (one.field, one.level) for one in asked.evidence
        ]
        for one in asked.evidence:
            assert f"<td>{one.level}</td><td>{one.weight:+.1f}</td>" in page
        assert "<td>–</td><td>&lt;b&gt;</td><td></td><td></td>" in page


def test_an_answer_is_about_the_people_that_were_shown(once: Once, tmp_path: Path) -> None:
    """Two operators have one question open, and a person changes in the meantime: the later answer changes nothing."""
    with People(f"sqlite:///{tmp_path / 'people.db'}") as people:
        people.add(record("csv", "1", name="Anna Schmidt", city="Berlin", country="DE"))
        people.add(record("crm", "2", name="Ana Schmidt", city="Berlin", country="DE"))
        ann, bob = Visitor(console_of(once, people=people)), Visitor(console_of(once, people=people))
        [review] = bob.json("/people?format=json")["reviews"]
        form = {name: review[name] for name in ("one", "other", "seen")} | {"answer": "same", "back": "/people"}
        people.add(record("crm", "2", name="Ana Schmidt", city="Berlin", country="DE", phone="030 901820"))
        for visitor in (ann, bob):
            visitor.get("/people")
        bob.post("/people/answer", form)
        assert "has changed since the pair was shown" in bob.get("/people").text
        [review] = ann.json("/people?format=json")["reviews"]
        form["seen"] = review["seen"]
        ann.post("/people/answer", form | {"answer": "different"})
        bob.post("/people/answer", form)
        assert "were answered in the meantime" in bob.get("/people").text
        bob.post("/people/answer", form | {"seen": ""})
        assert len(people) == 2
