"""A source that is not trusted adds what it says, and can take over no one's record."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.people import UNTRUSTED, People, SourceRecord, Trust
from tests.people_backends import BOTH, partition, people_url, record

ANNA = {"name": "Anna Schmidt", "date_of_birth": "1980-01-31", "city": "Berlin"}
TRUST = {"web": UNTRUSTED, "shop": Trust(identifiers=("email",), fields=("Newsletter",))}


@pytest.fixture(params=BOTH)
def people(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[People]:
    with People(people_url(request.param, tmp_path, request), trust=TRUST) as opened:
        yield opened


@pytest.mark.finding("N37")
def test_a_row_of_a_web_form_never_merges_two_people(people: People) -> None:
    anna = people.add(record("crm", "1", external_id="C-1", **ANNA)).person
    bernd = people.add(record("crm", "2", email="bernd@example.com", name="Bernd Krause")).person
    form = people.add(record("web", "1", external_id="C-1", email="bernd@example.com"))
    assert form.merged == ()
    assert form.person in (anna, bernd)
    assert len(people) == 2
    found = people.find(email="bernd@example.com")
    assert found is not None
    assert found.id == bernd


@pytest.mark.finding("N37")
def test_an_untrusted_row_gives_no_key_and_replaces_no_value(people: People) -> None:
    anna = people.add(record("crm", "1", email="anna@example.com", Phone="1", **ANNA)).person
    form = people.add(record("web", "1", email="anna@example.com", external_id="C-9", Phone="666", Note="call me"))
    assert (form.action, form.person, form.rule) == ("updated", anna, "claim")
    person = people.get(anna or "")
    assert person is not None
    assert (person.fields["Phone"], person.fields["Note"]) == ("1", "call me")
    assert people.find(external_id="C-9") is None
    other = people.add(record("crm", "2", external_id="C-9", name="Bernd Krause"))
    assert other.person != anna


@pytest.mark.finding("N37")
def test_a_source_is_trusted_per_field(people: People) -> None:
    anna = people.add(record("crm", "1", email="anna@example.com", Newsletter="no", Room="1")).person
    row = people.add(record("shop", "1", email="anna@example.com", external_id="C-1", Newsletter="yes", Room="2"))
    assert (row.person, row.rule) == (anna, "key:email")
    person = people.get(anna or "")
    assert person is not None
    assert (person.fields["Newsletter"], person.fields["Room"]) == ("yes", "1")
    assert people.find(external_id="C-1") is None


@pytest.mark.finding("N37", "N64")
def test_untrusted_rows_give_the_same_people_in_every_order() -> None:
    rows = [
        record("web", "1", email="anna@example.com", external_id="C-2"),
        record("web", "2", email="anna@example.com"),
        record("crm", "1", email="anna@example.com", **ANNA),
        record("crm", "2", external_id="C-2", name="Bernd Krause", city="Rome"),
    ]
    found = set()
    for order in permutations(rows):
        with People("sqlite://:memory:", trust=TRUST) as people:
            for row in order:
                people.add(row)
            found.add(frozenset(partition(people)))
    [only] = found
    assert not any({("crm", "1"), ("crm", "2")} <= one for one in only)


def test_a_source_cannot_be_trusted_with_a_weak_field() -> None:
    with pytest.raises(ConfigurationError, match="'web' is trusted with the identifier 'city'"):
        People("sqlite://:memory:", trust={"web": Trust(identifiers=("city",))})


@pytest.mark.finding("N37")
def test_without_a_declaration_every_source_is_trusted() -> None:
    with People("sqlite://:memory:") as people:
        people.add_many([SourceRecord("crm", {"external_id": "C-1"}), SourceRecord("crm", {"email": "b@example.com"})])
        people.add(SourceRecord("web", {"external_id": "C-1", "email": "b@example.com"}))
        assert len(people) == 1
