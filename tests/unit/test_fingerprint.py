from __future__ import annotations

from decimal import Decimal
from types import MappingProxyType

import pytest

from onceward.errors import InvalidKey
from onceward.keys.fingerprint import comparable, differing_arguments, fingerprint, hash_arguments


@pytest.mark.mission("B1")
@pytest.mark.fault("F18")
def test_order_does_not_matter_names_types_and_values_do() -> None:
    own = fingerprint({"amount": Decimal(10), "to": "ada"})
    assert own == fingerprint({"to": "ada", "amount": Decimal(10)})
    assert own == fingerprint(MappingProxyType({"to": "ada", "amount": Decimal(10)}))
    others: list[dict[str, object]] = [
        {"amount": "10", "to": "ada"},
        {"amount": Decimal(10), "an": "ada"},
        {"amount": Decimal(10)},
        {},
    ]
    assert len({own, *(fingerprint(other) for other in others)}) == 5


@pytest.mark.fault("F19")
def test_what_is_changed_afterwards_does_not_change_the_fingerprint_taken() -> None:
    body = {"amount": 1}
    before = fingerprint({"body": body})
    body["amount"] = 2
    assert before == fingerprint({"body": {"amount": 1}}) != fingerprint({"body": body})


def test_only_fingerprints_of_one_encoder_version_are_compared() -> None:
    own = fingerprint({"a": 1})
    assert len(own) == 17
    assert comparable(own, fingerprint({"a": 2}))
    assert not comparable(own, bytes((own[0] + 1,)) + own[1:])
    assert not comparable(own, None)
    assert not comparable(None, None)
    assert not comparable(b"", b"")


@pytest.mark.fault("F18")
def test_the_arguments_that_differ_are_named() -> None:
    stored = hash_arguments({"to": "ada", "amount": 10, "note": None}, b"id")
    assert differing_arguments(stored, hash_arguments({"to": "ada", "amount": 10, "note": None}, b"id")) == ()
    assert differing_arguments(stored, hash_arguments({"to": "ada", "amount": "10", "note": None}, b"id")) == (
        "amount",
    )
    assert differing_arguments(stored, hash_arguments({"to": "bob", "amount": 10, "copy": 1}, b"id")) == (
        "to",
        "copy",
        "note",
    )


def test_short_hashes_of_two_records_do_not_show_that_arguments_are_equal() -> None:
    assert hash_arguments({"password": "x"}, b"one") != hash_arguments({"password": "x"}, b"two")
    same = hash_arguments({"a": "x", "b": "x"}, b"one")
    assert same["a"] != same["b"]
    assert len(same["a"]) == 8


def test_an_argument_without_stable_meaning_is_named() -> None:
    with pytest.raises(InvalidKey, match=r"^payload\.items\[0\]: "):
        fingerprint({"payload": {"items": [object()]}})
    with pytest.raises(InvalidKey, match=r"^payload\.items\[0\]: "):
        hash_arguments({"payload": {"items": [object()]}}, b"id")
