"""One record per person, however often and from wherever it arrives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from onceward.errors import ConfigurationError, StoreBroken
from onceward.people import FIRST, LONGEST, UNION, Evidence, People, SourceRecord, prefer
from onceward.testing import FakeClock
from tests.people_backends import BOTH, PROSPECTS, actions, everything, partition, people_url, record

ANNA = {"name": "Anna Schmidt", "city": "Berlin", "country": "Germany"}


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return people_url(request.param, tmp_path, request)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def people(url: str, clock: FakeClock) -> Iterator[People]:
    with People(url, clock=clock, rules=PROSPECTS) as opened:
        yield opened


# ── the learning records' own cases ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("D2")
def test_the_same_user_from_xapi_and_csv_is_one_record_with_both_sources(people: People) -> None:
    people.add(record("xapi", "john", email="mailto:John@Example.com"))
    decision = people.add(record("csv", email="john@example.com", Team="UVM"))
    john = people.find(email=" JOHN@example.com ")
    assert john is not None
    assert (decision.action, decision.person, decision.rule) == ("updated", john.id, "key:email")
    assert john.sources == ("xapi", "csv")
    assert john.fields == {"email": "john@example.com", "Team": "UVM"}
    assert john.of("csv") == [{"email": "john@example.com", "Team": "UVM"}]
    assert len(people) == 1


@pytest.mark.mission("C5")
def test_the_same_name_and_place_is_found_however_many_share_a_part_of_it(people: People) -> None:
    first = people.add(record("crm", "1", **ANNA)).person
    words = ["".join(f"{one}a" for one in three).capitalize() for three in product("bfjklmnrst", repeat=3)]
    others = [f"{words[n]} Schmidt" for n in range(40)] + [f"Anna {words[-n]}" for n in range(1, 41)]
    people.add_many(record("csv", name, **ANNA | {"name": name}) for name in others)
    assert people.add(record("fair", "1", **ANNA)).person == first


@pytest.mark.mission("D3", "C7")
def test_the_same_rows_twice_change_no_column(people: People, clock: FakeClock) -> None:
    rows = [
        record("csv", email="john@example.com", Team="UVM"),
        record("csv", email="john@example.com", Team="Night shift"),
        record("csv", "7", **ANNA),
        record("crm", "1", **ANNA, phone="030 901820"),
    ]
    assert actions(people.add_many(rows)) == ["created", "updated", "created", "updated"]
    before = everything(people)
    clock.advance("1d")
    assert actions(people.add_many(rows)) == ["skipped"] * 4
    assert actions([people.add(row) for row in reversed(rows)]) == ["skipped"] * 4
    assert everything(people) == before


@pytest.mark.mission("D3")
def test_several_rows_of_one_user_make_one_record_that_keeps_them_all(people: People) -> None:
    people.add_many([record("csv", email="john@example.com", Team=team) for team in ("A", "B", "C")])
    john = people.find(email="john@example.com")
    assert john is not None
    assert [row["Team"] for row in john.of("csv")] == ["A", "B", "C"]
    assert (len(people), john.sources, john.fields["Team"]) == (1, ("csv",), "C")


@pytest.mark.mission("D3")
def test_a_source_that_is_imported_again_replaces_only_its_own_records(people: People, clock: FakeClock) -> None:
    people.add(record("xapi", "john", email="john@example.com", Team="from xapi"))
    people.add(record("csv", "1", email="john@example.com", Team="A", Room="12"))
    clock.advance("1h")
    assert people.add(record("csv", "1", email="john@example.com", Team="B")).action == "updated"
    john = people.find(email="john@example.com")
    assert john is not None
    assert john.of("csv") == [{"email": "john@example.com", "Team": "B"}]
    assert john.of("xapi") == [{"email": "john@example.com", "Team": "from xapi"}]
    assert john.fields == {"email": "john@example.com", "Team": "B"}
    assert john.updated_at - john.created_at == timedelta(hours=1)


@pytest.mark.mission("D2")
def test_first_and_last_seen_are_what_the_sources_say(people: People) -> None:
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in (5, 2, 9)]
    fields = {"email": "john@example.com"}
    people.add_many([SourceRecord("xapi", fields, f"statement {day:%d}", day) for day in days])
    john = people.find(email="john@example.com")
    assert john is not None
    assert (john.first_seen, john.last_seen) == (days[1], days[2])


def test_an_older_version_that_comes_late_does_not_replace_a_newer_one(people: People) -> None:
    old, new = (datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2))
    people.add(SourceRecord("crm", {"email": "a@b.example", "Room": "new"}, "1", new))
    decision = people.add(SourceRecord("crm", {"email": "a@b.example", "Room": "old"}, "1", old))
    assert (decision.action, decision.rule) == ("skipped", "older")
    found = people.find(email="a@b.example")
    assert found is not None
    assert found.fields["Room"] == "new"


# ── prospects ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mission("C5")
def test_the_same_address_updates_and_else_name_city_and_country_do_and_else_it_is_created(people: People) -> None:
    first = people.add(record("list", "1", email="anna@example.com", **ANNA))
    same_address = people.add(record("fair", "1", email="ANNA@example.com", name="A. S."))
    same_place = people.add(record("fair", "2", name="SCHMIDT, Anna", city="berlin", country="de"))
    other_place = people.add(record("fair", "3", name="Anna Schmidt", city="Rome", country="Italy"))
    assert actions([first, same_address, same_place, other_place]) == ["created", "updated", "updated", "created"]
    assert first.person == same_address.person == same_place.person != other_place.person
    assert same_place.confidence > 0.9
    assert {one.field for one in same_place.evidence} == {"given_name", "surname", "city", "country"}


def test_members_of_a_household_become_different_people(people: People) -> None:
    home = {"street": "Hauptstr. 5", "postcode": "10115", "city": "Berlin", "country": "DE", "phone": "030 901820"}
    names = ("Anna", "Bernd", "Clara")
    people.add_many([record("csv", name, given_name=name, surname="Schmidt", **home) for name in names])
    assert len(people) == 3
    clara = people.add(record("crm", "9", given_name="Clara", surname="Schmidt", **home))
    assert clara.rule == "similarity"
    assert len(people) == 3


def turned(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """Return the same comparisons, seen from the other record."""
    return tuple(replace(each, here=each.there, there=each.here) for each in evidence)


def test_a_doubtful_match_makes_a_new_person_and_a_review(people: People) -> None:
    anna = people.add(record("csv", "1", **ANNA)).person
    doubt = people.add(record("csv", "2", **ANNA | {"name": "Ana Schmidt"}))
    assert (doubt.action, doubt.candidate) == ("to_review", anna)
    assert 0.5 <= doubt.confidence < 0.9
    [question] = people.reviews()
    assert {question.one.id, question.other.id} == {anna, doubt.person}
    here = doubt.evidence if question.one.id == doubt.person else turned(doubt.evidence)
    assert question.evidence == here, "`here` is the value of `one`"
    assert people.add(record("csv", "2", **ANNA | {"name": "Ana Schmidt"})).action == "skipped"


def test_every_contribution_stores_why_it_was_matched(people: People) -> None:
    people.add_many([record("a", "1", **ANNA), record("b", "1", **ANNA), record("c", "1", **ANNA)])
    [anna] = people
    assert [(part.source, part.rule) for part in anna.contributions] == [
        *(("a", "new"), ("b", "similarity"), ("c", "similarity"))
    ]
    assert all(part.confidence > 0.9 for part in anna.contributions)


def test_a_record_that_matches_two_people_merges_them(people: People) -> None:
    home = {"street": "Hauptstr. 5", "postcode": "10115", "city": "Berlin", "country": "DE"}
    first = people.add(record("a", "1", name="Anna Schmidt", phone="+491715551234")).person
    second = people.add(record("b", "1", name="Anna Schmidt", **home)).person
    assert first != second
    bridge = people.add(record("c", "1", name="Anna Schmidt", phone="+491715551234", **home))
    assert (bridge.person, bridge.merged) == (first, (second,))
    [anna] = people
    assert anna.sources == ("a", "b", "c")


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("last", [0, 1, 2])
def test_a_record_without_a_birth_date_does_not_merge_father_and_son(
    people: People, batch_size: int, last: int
) -> None:
    hans = {"name": "Hans Schmidt", "street": "Hauptstr. 5", "postcode": "10115", "city": "Berlin", "country": "DE"}
    rows = [
        record("a", "father", **hans, date_of_birth="1950-03-01"),
        record("a", "son", **hans, date_of_birth="1981-11-23"),
        record("a", "either", **hans),
    ]
    rows.append(rows.pop(last))
    for start in range(0, 3, batch_size):
        people.add_many(rows[start : start + batch_size])
    for both in partition(people):
        assert not {("a", "father"), ("a", "son")} <= both


def test_stored_fields_of_a_person_are_considered_within_a_batch(people: People) -> None:
    home = {"name": "Hans Schmidt", "street": "Hauptstr. 5", "postcode": "10115", "city": "Berlin", "country": "DE"}
    father = people.add(record("a", "1", email="hans@example.com", date_of_birth="1950-03-01", **home)).person
    decisions = people.add_many(
        [record("b", "1", email="hans@example.com", **home), record("b", "2", date_of_birth="1981-11-23", **home)]
    )
    assert decisions[0].person == father != decisions[1].person


def test_stored_fields_of_both_people_are_considered_after_a_merge_within_a_batch(people: People) -> None:
    home = {"name": "Hans Schmidt", "street": "Hauptstr. 5", "postcode": "10115", "city": "Berlin", "country": "DE"}
    decisions = people.add_many(
        [
            record("a", "1", email="hans@example.com", **home),
            record("a", "2", external_id="C-1", name="Hans Schmidt", date_of_birth="1950-03-01"),
            record("a", "3", email="hans@example.com", external_id="C-1"),
            record("a", "4", date_of_birth="1981-11-23", **home),
        ]
    )
    assert actions(decisions)[:3] == ["created", "created", "updated"]
    assert decisions[2].merged == (decisions[1].person,)
    assert decisions[3].person != decisions[0].person


# ── exact matches ───────────────────────────────────────────────────────────────────────────────────────────────────

BRIDGED = [
    record("web", "1", email="a@example.com"),
    record("shop", "1", external_id="C-1"),
    record("crm", "1", email="b@example.com", external_id="C-2"),
    record("crm", "2", email="a@example.com", external_id="C-1"),
    record("news", "1", email=["b@example.com", "c@example.com"]),
    record("news", "2", email="c@example.com"),
    record("web", "2", email="z@example.com"),
]
EXPECTED = {
    frozenset({("web", "1"), ("shop", "1"), ("crm", "2")}),
    frozenset({("crm", "1"), ("news", "1"), ("news", "2")}),
    frozenset({("web", "2")}),
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_the_order_of_input_changes_no_exact_match(tmp_path: Path, seed: int, batch_size: int) -> None:
    rows = BRIDGED * 2
    random.Random(seed).shuffle(rows)
    with People(f"sqlite:///{tmp_path}/people.db") as people:
        for start in range(0, len(rows), batch_size):
            people.add_many(rows[start : start + batch_size])
        assert partition(people) == EXPECTED


def test_two_records_found_to_be_one_person_are_merged_and_the_old_id_redirects(people: People) -> None:
    web = people.add(record("web", "1", email="a@example.com", Room="1")).person
    shop = people.add(record("shop", "1", external_id="C-1", Floor="2")).person
    decision = people.add(record("crm", "1", email="a@example.com", external_id="C-1"))
    assert (decision.person, decision.merged) == (web, (shop,))
    assert web is not None
    assert shop is not None
    assert web != shop
    person = people.get(shop)
    assert person is not None
    assert person.id == web
    assert person.sources == ("web", "shop", "crm")
    assert person.fields == {"email": "a@example.com", "external_id": "C-1", "Room": "1", "Floor": "2"}
    assert person.keys == ("email:a@example.com", "external_id:C-1")
    assert people.add(record("shop", "2", external_id="C-1")).person == web
    assert len(people) == 1


def test_the_old_id_also_redirects_after_a_merge_within_one_batch(people: People) -> None:
    decisions = people.add_many([*BRIDGED[:2], BRIDGED[3]])
    assert [people.get(one.person or "") == people.get(decisions[0].person or "") for one in decisions] == [True] * 3
    assert len(people) == 1


def test_an_id_that_its_source_gives_to_another_person_moves_the_record(people: People) -> None:
    anna = people.add(record("csv", "5", **ANNA)).person
    paul = people.add(record("csv", "5", name="Paul Meyer", city="Rome", country="IT"))
    assert paul.action == "created"
    assert paul.person != anna
    [found] = [person for person in people if person.id == paul.person]
    assert found.fields["name"] == "Paul Meyer"
    back = people.add(record("csv", "6", name="Pauline Meyer", city="Rome", country="IT", email="p@example.com"))
    assert back.person != paul.person


def test_an_id_whose_record_moves_to_the_owner_of_its_key(people: People) -> None:
    anna = people.add(record("csv", "1", email="anna@example.com")).person
    paul = people.add(record("csv", "2", email="paul@example.com", Room="7")).person
    assert people.add(record("csv", "2", email="anna@example.com", Room="8")).person == anna
    found = people.get(anna or "")
    assert found is not None
    assert found.fields["Room"] == "8"
    assert people.get(paul or "") is not None


# ── merging ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_field_is_merged_by_its_policy(url: str, clock: FakeClock) -> None:
    policies = {"Since": FIRST, "Note": LONGEST, "Tag": UNION, "Room": prefer("crm", "web")}
    with People(url, policies=policies, clock=clock) as people:
        for source, since, note, tag in (
            *(("web", "2020", "long note", "a"), ("crm", "2021", "note", ["b", "a"]), ("csv", "2022", "", "c")),
        ):
            clock.advance("1h")
            fields = {"email": "a@b.example", "Since": since, "Note": note, "Tag": tag, "Room": source, "Last": source}
            people.add(SourceRecord(source, fields, "1"))
        [person] = people
    expected = {"Since": "2020", "Note": "long note", "Tag": ["a", "b", "c"], "Room": "crm", "Last": "csv"}
    assert person.fields == expected | {"email": "a@b.example"}


def test_a_contribution_that_changes_nothing_of_the_person_changes_no_column_of_it(url: str, clock: FakeClock) -> None:
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 3)]
    with People(url, clock=clock) as people:
        for day, room in ((days[0], "old"), (days[2], "new")):
            people.add(SourceRecord(f"source {room}", {"email": "a@b.example", "Room": room}, "1", day))
        [before] = people
        clock.advance("1d")
        changed = SourceRecord("source old", {"email": "a@b.example", "Room": "older"}, "1", days[0])
        assert people.add(changed).action == "updated"
        [after] = people
    assert (after.fields, after.updated_at) == (before.fields, before.updated_at)
    assert after.of("source old") == [{"email": "a@b.example", "Room": "older"}]


def test_keys_that_a_record_no_longer_contains_are_no_longer_found(people: People) -> None:
    people.add(record("a", "1", **ANNA))
    people.add(record("a", "1", **ANNA | {"city": "Hamburg"}))
    blocks = everything(people)[3]
    people.add(record("a", "1", **ANNA))
    people.add(record("a", "1", **ANNA | {"city": "Hamburg"}))
    assert everything(people)[3] == blocks
    assert len(blocks) == 3


# ── bad input ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_bad_record_stops_no_other_and_says_what_is_wrong(people: People) -> None:
    decisions = people.add_many(
        [
            record("csv", email="no address"),
            record("csv", email="a@example.com", Note="nul \0 here", name="A\0B"),
            record("csv", Team="none"),
            record("csv", email="b@example.com", Note="\ud800"),
            record("csv", "x" * 100_000, external_id="y" * 100_000),
            record("csv", email="c@example.com", Note="z" * 10_000_000, name="n" * 10_000_000),
            record("", email="d@example.com"),
        ]
    )
    assert actions(decisions) == ["rejected", "created", "rejected", "rejected", "created", "created", "rejected"]
    assert "no address" in decisions[0].reason
    assert "fields that identify a person" in decisions[2].reason
    assert "JSON" in decisions[3].reason
    assert "source is empty" in decisions[6].reason
    found = people.find(external_id="y" * 100_000)
    assert found is not None
    assert len(people) == 3


def test_people_that_were_filled_with_other_fields_are_not_touched(url: str) -> None:
    from onceward.people import PERSON

    with People(url) as people:
        people.add(record("csv", email="a@example.com"))
    fewer = {name: field for name, field in PERSON.items() if name != "phone"}
    with People(url, fields=fewer) as people, pytest.raises(ConfigurationError, match="reindex"):
        people.add(record("csv", email="b@example.com"))


def test_a_new_index_finds_people_by_the_fields_as_they_are_declared_now(url: str) -> None:
    from onceward.people import PERSON, Field, kinds

    with People(url) as people:
        first = people.add(record("csv", "1", email="a@example.com", badge="7")).person
        other = people.add(record("csv", "2", email="b@example.com", badge="7")).person
    with People(url, fields={**PERSON, "badge": Field(kinds.EXTERNAL_ID, strong=True)}) as people:
        assert people.reindex() == 2
        assert people.add(record("door", "1", badge="7")).person == first
        assert people.add(record("csv", "1", email="a@example.com", badge="7")).action == "skipped"
        [question] = people.reviews()
        assert {question.one.id, question.other.id} == {first, other}


def test_a_database_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="redis"):
        People("redis://localhost")


def test_tables_are_made_in_postgresql_only_if_asked_for(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = people_url("postgres", tmp_path, request).replace("&migrate=1", "")
    with People(url) as people, pytest.raises(StoreBroken, match="migrate=1"):
        people.add(record("csv", email="a@example.com"))
