"""How sure it is that two records are of one person."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.people import PERSON, Field, SourceRecord, kinds
from onceward.people.blocking import skeleton
from onceward.people.fields import Preset, preset
from onceward.people.kinds import FieldKind
from onceward.people.preparation import NormalForm, encode_record, prepare_record
from onceward.people.similarity import Similarity

FIELDS = preset(PERSON)
SIMILARITY = Similarity(FIELDS)
ANNA = {"name": "Anna Schmidt", "city": "Berlin", "country": "Germany"}
AT_HOME = {"street": "Hauptstr. 5", "postcode": "10115", "city": "Berlin", "country": "DE", "phone": "030 901820"}


def form_of(fields: dict[str, Any], by: Preset = FIELDS) -> NormalForm:
    return prepare_record(by, encode_record(SourceRecord("test", fields)), fields).form


def confidence(here: dict[str, Any], there: dict[str, Any]) -> float:
    forms = [form_of(fields) for fields in (here, there)]
    first, second = (SIMILARITY.confidence(one, other) for one, other in (forms, forms[::-1]))
    assert first == pytest.approx(second), "the order must not matter"
    return first


@pytest.mark.mission("C5")
def test_the_same_name_city_and_country_are_one_person() -> None:
    assert confidence(ANNA, {"name": "SCHMIDT, Anna", "city": "berlin", "country": "de"}) > 0.9


@pytest.mark.mission("C5")
@pytest.mark.parametrize(
    "other",
    [
        {"name": "Anna Schmidt", "city": "Hamburg", "country": "DE"},
        {"name": "Bernd Schmidt", "city": "Berlin", "country": "DE"},
        {"name": "Anna Huber", "city": "Berlin", "country": "DE"},
        {"name": "Anna Schmidt"},
    ],
)
def test_less_than_that_is_not_enough(other: dict[str, Any]) -> None:
    assert confidence(ANNA, other) < 0.9


def test_members_of_a_household_are_different_people() -> None:
    anna = AT_HOME | {"given_name": "Anna", "surname": "Schmidt"}
    assert confidence(anna, AT_HOME | {"given_name": "Bernd", "surname": "Schmidt"}) < 0.1
    assert confidence(anna, AT_HOME | {"given_name": "Anna", "surname": "Schmidt"}) > 0.95


def test_sisters_whose_addresses_are_as_close_as_their_names_are_not_merged_without_a_question() -> None:
    anna, hanna = (
        ANNA | {"name": f"{name} Schmidt", "email": f"{name}.schmidt@b.example"} for name in ("Anna", "Hanna")
    )
    assert confidence(anna, hanna) < 0.9


def test_a_father_and_a_son_of_the_same_name_are_not_merged_without_a_question() -> None:
    father = AT_HOME | {"given_name": "Hans", "surname": "Schmidt", "date_of_birth": "1950-03-01"}
    assert confidence(father, father | {"date_of_birth": "1980-11-23"}) < 0.9


def test_without_a_given_name_members_of_a_household_cannot_be_distinguished() -> None:
    assert confidence(AT_HOME | {"surname": "Schmidt"}, AT_HOME | {"given_name": "Anna", "surname": "Schmidt"}) < 0.9


@pytest.mark.parametrize("name", ["phone", "date_of_birth", "street", "company", "national_id", "email"])
def test_a_missing_field_is_no_evidence(name: str) -> None:
    values = {"phone": "+491715551234", "date_of_birth": "1980-01-31", "email": "a@b.example"}
    there = ANNA | {name: values.get(name, "something")}
    assert confidence(ANNA, there) == pytest.approx(confidence(ANNA, ANNA))
    for missing in ("", "   ", None):
        assert confidence(ANNA | {name: missing}, there) == pytest.approx(confidence(ANNA, ANNA))


def test_a_person_who_has_moved_is_one_person_if_the_other_fields_agree() -> None:
    anna = {"given_name": "Anna", "surname": "Schmidt", "date_of_birth": "1980-01-31", "national_id": "85749302"}
    moved = {"street": "Rue Haute 9", "postcode": "75001", "city": "Paris", "country": "FR"}
    assert confidence(anna | AT_HOME, anna | moved) > 0.99


def test_one_typo_is_tolerated_if_enough_fields_agree() -> None:
    anna = AT_HOME | {"given_name": "Anna", "surname": "Schmidt", "date_of_birth": "1980-01-31"}
    for name, typo in {"surname": "Schmitd", "date_of_birth": "1980-01-13", "street": "Haubtstr. 5"}.items():
        assert confidence(anna, anna | {name: typo}) > 0.99


def test_given_name_and_surname_may_have_been_swapped() -> None:
    anna = {"given_name": "Anna", "surname": "Schmidt", "date_of_birth": "1980-01-31"}
    assert confidence(anna, anna | {"given_name": "Schmidt", "surname": "Anna"}) > 0.9


def test_two_addresses_make_it_less_sure() -> None:
    assert confidence(ANNA | {"email": "a@a.example"}, ANNA | {"email": "b@b.example"}) < confidence(ANNA, ANNA)


def test_the_evidence_lists_each_field() -> None:
    here, there = form_of(ANNA), form_of(ANNA | {"city": "Hamburg"})
    evidence = {one.field: one for one in SIMILARITY.evidence(here, there)}
    assert set(evidence) == {"given_name", "surname", "city", "country"}
    assert (evidence["city"].level, evidence["city"].here, evidence["city"].there) == ("different", "berlin", "hamburg")
    assert evidence["city"].weight < 0 < evidence["surname"].weight


# ── addresses ──

AT_WORK = {"company": "Corp", "street": "Werkstr. 1", "city": "Berlin", "country": "DE", "phone": "030 901820"}


def levels(here: str, there: str) -> str:
    return kinds.EMAIL.levels[kinds.EMAIL.compare(here, there)].name


@pytest.mark.parametrize(
    ("here", "there", "level"),
    [
        ("anna.meier1@corp.example", "anna.meier2@corp.example", "numbered"),
        ("anna.meier@corp.example", "anna.meier2@corp.example", "numbered"),
        ("anna.meier@corp.example", "a.meier@corp.example", "same domain"),
        ("julia.meier@corp.example", "julian.meier@corp.example", "close"),
        ("anna.meier@corp.example", "anna.meyer@corp.example", "close"),
        ("anna@corp.example", "hanna@corp.example", "same domain"),
        ("anna.meier@corp.example", "anna.meier@crop.example", "close"),
        ("anna.meier@corp1.example", "anna.meier@corp2.example", "different"),
        ("anna.meier@corp.example", "anna.meier@home.example", "different"),
    ],
)
def test_how_two_addresses_compare(here: str, there: str, level: str) -> None:
    assert levels(here, there) == levels(there, here) == level


def test_another_address_is_never_evidence_for_one_person() -> None:
    for level in kinds.EMAIL.levels[1:]:
        assert level.same <= level.strangers, level.name
        assert level.name == "different" or level.same < level.among_colleagues / 4, level.name


@pytest.mark.mission("C5")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"name": "Anna Meier", "email": "anna.meier1@corp.example"}, {"email": "anna.meier2@corp.example"}),
        ({"name": "Anna Meier", "email": "anna.meier@corp.example"}, {"email": "a.meier@corp.example"}),
        (
            {"name": "Julia Meier", "email": "julia.meier@corp.example"},
            {"name": "Julian Meier", "email": "julian.meier@corp.example"},
        ),
        (
            {"name": "Martin Klein", "email": "m.klein@corp.example"},
            {"name": "Martina Klein", "email": "martina@corp.example"},
        ),
        ({"name": "Julia Meier"}, {"name": "Julian Meier"}),
    ],
)
@pytest.mark.parametrize("shared", [{"city": "Berlin", "country": "DE"}, AT_WORK])
def test_colleagues_are_not_merged_without_a_question(
    one: dict[str, Any], other: dict[str, Any], shared: dict[str, Any]
) -> None:
    """Colleagues share everything that belongs to their organisation, so it does not identify a person."""
    assert confidence(shared | one, shared | one | other) < 0.9


def test_a_typo_in_an_address_is_a_question_if_only_name_and_place_are_known() -> None:
    anna = ANNA | {"email": "anna.schmidt@mail.example"}
    for typo in ("anna.schmdit@mail.example", "anna.schmidt@mial.example"):
        assert 0.5 < confidence(anna, anna | {"email": typo}) < 0.9
    born = {"date_of_birth": "1980-01-31"}
    assert confidence(anna | born, anna | born | {"email": "anna.schmdit@mail.example"}) > 0.9


def test_a_private_and_an_official_address_are_a_question_unless_more_is_known() -> None:
    anna, private = ANNA | {"email": "anna.schmidt@corp.example"}, ANNA | {"email": "anna80@mail.example"}
    assert 0.5 < confidence(anna, private) < 0.9
    born = {"date_of_birth": "1980-01-31"}
    assert confidence(anna | born, private | born) > 0.99


@pytest.mark.parametrize("kind", [one for one in vars(kinds).values() if isinstance(one, FieldKind) and one.levels])
def test_the_chances_of_a_kind_are_chances(kind: FieldKind) -> None:
    for column in range(1, 4):
        assert sum(float(level[column] or 0) for level in kind.levels) == pytest.approx(1), kind.name
    assert sum(level.among_colleagues for level in kind.levels) == pytest.approx(1), kind.name
    assert all(kind.compare(*pair) < len(kind.levels) for pair in (("a", "b"), ("12-1-1", "13-2-2"), ("aaaa", "aaab")))


def test_names_that_sound_alike_are_looked_up_together() -> None:
    assert skeleton("schmidt") == skeleton("schmitt")
    assert skeleton("philip") == skeleton("fillip")
    assert skeleton("meyer") == skeleton("maier")
    assert skeleton("schmidt") != skeleton("huber")


def test_a_kind_of_your_own_counts_like_the_others() -> None:
    eyes = FieldKind(
        "eyes", str.lower, (kinds.MatchLevel("equal", 0.99, 0.5, 0.2), kinds.MatchLevel("different", 0.01, 0.5, 0.8))
    )
    own = preset({**PERSON, "eyes": Field(eyes)})
    similarity = Similarity(own)
    brown, green, none = (form_of(ANNA | {"eyes": mode}, own) for mode in ("Brown", "green", ""))
    unlike, unsaid, like = (similarity.confidence(brown, one) for one in (green, none, brown))
    assert unlike < unsaid < like
