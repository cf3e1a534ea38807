"""A strong key that implies another: a person known by one is known by the other, in whichever order they arrive."""

from __future__ import annotations

import hashlib
from itertools import permutations
from pathlib import Path

import pytest

from onceward import ConfigurationError
from onceward.people import Field, People, SourceRecord, kinds


def sha1_of(email: str) -> str:
    return hashlib.sha1(f"mailto:{email}".encode(), usedforsecurity=False).hexdigest()


FIELDS = {
    "email": Field(kinds.EMAIL, strong=True, implies={"sha1": sha1_of}),
    "sha1": Field(kinds.EXTERNAL_ID, strong=True),
}
BY_ADDRESS = SourceRecord("csv", {"email": "Anna@Example.com"}, "1")
BY_HASH = SourceRecord("xapi", {"sha1": sha1_of("anna@example.com")}, "2")
ANOTHER_PERSON = SourceRecord("xapi", {"sha1": sha1_of("bo@example.com")}, "3")


@pytest.mark.mission("D2")
@pytest.mark.parametrize("order", [*permutations((BY_ADDRESS, BY_HASH, ANOTHER_PERSON))])
def test_an_address_and_its_hash_are_one_person(tmp_path: Path, order: tuple[SourceRecord, ...]) -> None:
    with People(f"sqlite:///{tmp_path}/people.db?synchronous=NORMAL", fields=FIELDS) as people:
        for record in order:
            people.add(record)
        assert len(people) == 2
        anna = people.find(sha1=sha1_of("anna@example.com"))
        assert anna is not None
        assert anna == people.find(email="anna@example.com")
        assert sorted(anna.sources) == ["csv", "xapi"]


def test_an_index_that_was_made_without_implied_keys_is_noticed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/people.db"
    plain = FIELDS | {"email": Field(kinds.EMAIL, strong=True)}
    with People(url, fields=plain) as people:
        people.add(BY_ADDRESS)
    with People(url, fields=FIELDS) as people:
        with pytest.raises(ConfigurationError, match="reindex"):
            people.add(BY_HASH)
        people.reindex()
        people.add(BY_HASH)
        assert len(people) == 1


def test_only_strong_fields_imply_strong_fields(tmp_path: Path) -> None:
    for fields in (
        {"email": FIELDS["email"]},
        FIELDS | {"sha1": Field(kinds.EXTERNAL_ID)},
        FIELDS | {"email": Field(kinds.EMAIL, implies={"sha1": sha1_of})},
    ):
        with pytest.raises(ConfigurationError, match="email implies sha1"):
            People(f"sqlite:///{tmp_path}/people.db", fields=fields)
