"""Which statements are equal: the specification's rules, one by one, and which differences they do not ignore."""

from __future__ import annotations

import random
from typing import Any

import pytest

from examples.learning.records import parse_statement
from examples.learning.xapi import digest, instant
from tests.learning.samples import JOHN, VERBS, statement, uuid

GROUP = {"objectType": "Group", "member": [JOHN, {"mbox": "mailto:mary@example.com", "name": "Mary"}]}
FULL = statement(
    actor=GROUP,
    verb={"id": f"{VERBS}completed", "display": {"en": "completed"}},
    object={"id": "https://example.com/c", "definition": {"name": {"en": "C"}}},
    result={"score": {"scaled": 0.5, "raw": 1}, "duration": "PT60M", "extensions": {"https://e.com/x": [1.0, None]}},
    context={
        "registration": uuid("r").upper(),
        "contextActivities": {"parent": {"id": "https://example.com/p", "definition": {}}},
        "statement": {"objectType": "StatementRef", "id": uuid("other").upper()},
    },
    timestamp="2026-03-01T12:00:00.120Z",
)


def changed(source: dict[str, Any], *path: str, to: Any) -> dict[str, Any]:
    head, *rest = path
    return {**source, head: changed(source.get(head, {}), *rest, to=to) if rest else to}


SAME = {
    "time zone": changed(FULL, "timestamp", to="2026-03-01T13:00:00.120+01:00"),
    "precision": changed(FULL, "timestamp", to="2026-03-01T12:00:00.12000Z"),
    "display": changed(FULL, "verb", "display", to={"de": "abgeschlossen"}),
    "definition": changed(FULL, "object", "definition", to={"type": "https://example.com/course"}),
    "member order": changed(FULL, "actor", "member", to=GROUP["member"][::-1]),
}
"""The same statement, spelt in five ways."""

ALSO_THE_SAME = {
    "what the server sets": {
        **FULL,
        "stored": "2020-01-01T00:00:00Z",
        "version": "1.0.3",
        "authority": JOHN,
        "id": uuid("s1").upper(),
    },
    "definitions of context activities": changed(
        FULL, "context", "contextActivities", "parent", "definition", to={"name": {"en": "P"}}
    ),
    "one activity or a list of one": changed(
        FULL, "context", "contextActivities", "parent", to=[{"id": "https://example.com/p"}]
    ),
    "upper case of UUIDs": changed(FULL, "context", "registration", to=uuid("r")),
    "upper case of domains": changed(
        FULL, "actor", "member", to=[{"mbox": "mailto:john@EXAMPLE.com"}, GROUP["member"][1]]
    ),
    "a number by value": changed(FULL, "result", "score", "raw", to=1.0),
    "no timestamp given": {name: value for name, value in FULL.items() if name != "timestamp"},
}

PARTS = statement(result={"duration": "PT1M2.34S"})
DURATIONS = {"PT1M2.34S": True, "PT1M2.349S": True, "PT1M2.3400S": True, "PT1M2.33S": False, "PT1M2S": False}

OTHERS = {
    "a duration is text": changed(FULL, "result", "duration", to="PT1H"),
    "another actor": changed(FULL, "actor", to=JOHN),
    "another member": changed(FULL, "actor", "member", to=[JOHN]),
    "another name of a member": changed(FULL, "actor", "member", to=[JOHN, {"mbox": "mailto:mary@example.com"}]),
    "the local part in other case": changed(
        FULL, "actor", "member", to=[{"mbox": "mailto:John@example.com"}, GROUP["member"][1]]
    ),
    "another verb": changed(FULL, "verb", "id", to=f"{VERBS}passed"),
    "another object": changed(FULL, "object", "id", to="https://example.com/d"),
    "another score": changed(FULL, "result", "score", "scaled", to=0.51),
    "no result": {name: value for name, value in FULL.items() if name != "result"},
    "another extension": changed(FULL, "result", "extensions", to={"https://e.com/x": [1]}),
    "another context": changed(FULL, "context", "registration", to=uuid("q")),
    "another instant": changed(FULL, "timestamp", to="2026-03-01T12:00:00.121Z"),
}


def agree(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Compare as the table does: a missing timestamp equals any."""
    left, right = parse_statement(one), parse_statement(other)
    times = left.given_at, right.given_at
    return left.digest == right.digest and (None in times or times[0] == times[1])


@pytest.mark.mission("D1")
@pytest.mark.parametrize("spelling", SAME)
def test_the_same_statement_spelt_in_five_ways_is_one(spelling: str) -> None:
    assert SAME[spelling] != FULL, "it is written differently"
    assert agree(FULL, SAME[spelling])
    assert parse_statement(FULL).id == parse_statement(SAME[spelling]).id


@pytest.mark.mission("D1")
@pytest.mark.parametrize("spelling", ALSO_THE_SAME)
def test_what_else_does_not_count(spelling: str) -> None:
    assert ALSO_THE_SAME[spelling] != FULL or spelling == "a number by value"
    assert agree(FULL, ALSO_THE_SAME[spelling])


@pytest.mark.mission("D1")
@pytest.mark.parametrize("difference", OTHERS)
def test_everything_else_counts(difference: str) -> None:
    assert not agree(FULL, OTHERS[difference])


def test_substatements_are_compared_by_the_same_rules() -> None:
    planned = {"objectType": "SubStatement", **{name: value for name, value in FULL.items() if name != "id"}}
    one = statement(object=planned)
    assert digest(one) == digest(statement(object={**planned, "timestamp": "2026-03-01T14:00:00.120+02:00"}))
    assert digest(one) == digest(statement(object={**planned, "verb": {"id": f"{VERBS}completed"}}))
    assert digest(one) != digest(statement(object={**planned, "timestamp": "2026-03-01T14:00:00Z"})), (
        "substatements get no timestamp"
    )


def test_upper_case_of_hashes_and_references_and_the_spelling_of_numbers_do_not_count() -> None:
    def digest_of(sha1: str, id: str, number: float) -> str:
        reference = {"objectType": "StatementRef", "id": id}
        context = {"statement": reference, "extensions": {"https://e.com/x": {"y": [number]}}}
        return parse_statement(statement(actor={"mbox_sha1sum": sha1}, object=reference, context=context)).digest

    assert digest_of("ab" * 20, uuid("r"), 1) == digest_of("AB" * 20, uuid("r").upper(), 1.0)
    assert digest_of("ab" * 20, uuid("r"), 1) != digest_of("ab" * 20, uuid("r"), 1.5)


def test_agents_in_the_context_are_compared_like_actors() -> None:
    def digest_of(domain: str, turn: int) -> str:
        mary = {"mbox": f"mailto:mary@{domain}"}
        team = {"objectType": "Group", "member": [JOHN, mary][::turn]}
        agents, groups = ("contextAgent", "agent", mary), ("contextGroup", "group", team)
        lists = {f"{kind}s": [{"objectType": kind, name: who}] for kind, name, who in (agents, groups)}
        return parse_statement(statement(context={"instructor": mary, "team": team, **lists})).digest

    assert digest_of("example.com", 1) == digest_of("EXAMPLE.com", -1)
    assert digest_of("example.com", 1) != digest_of("example.org", 1)


def test_a_time_without_a_zone_is_utc_and_beyond_milliseconds_nothing_counts() -> None:
    assert instant("2026-03-01T12:00:00") == instant("2026-03-01t12:00:00z")
    assert instant("2026-03-01T12:00:00.1234567Z") == instant("2026-03-01T12:00:00,123Z")


def test_the_order_of_properties_does_not_count() -> None:
    dice = random.Random(1)
    for _ in range(20):
        names = list(FULL)
        dice.shuffle(names)
        assert digest({name: FULL[name] for name in names}) == digest(FULL)


@pytest.mark.finding("N57")
@pytest.mark.mission("D1")
@pytest.mark.parametrize("duration", DURATIONS)
def test_a_duration_is_compared_to_a_hundredth_of_a_second(duration: str) -> None:
    assert agree(PARTS, statement(result={"duration": duration})) is DURATIONS[duration]


@pytest.mark.finding("N57")
def test_a_single_context_activity_of_a_substatement_is_returned_as_a_list() -> None:
    inner = {name: value for name, value in FULL.items() if name != "id"}
    found = parse_statement(statement(object={"objectType": "SubStatement", **inner}))
    assert found.content["object"]["context"]["contextActivities"] == {
        "parent": [{"id": "https://example.com/p", "definition": {}}]
    }
