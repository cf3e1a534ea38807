from __future__ import annotations

import enum
import re
import unicodedata
import uuid
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest

from onceward.errors import InvalidKey, MissingKey
from onceward.keys.key import Key, Scope, derived_key, make_key

SCOPE = Scope("shop", "send_email")


def test_the_id_of_a_key_is_frozen() -> None:
    tenant = Scope("shop", "send_email", "acme")
    assert make_key(SCOPE, "a").id.hex() == "08decd114039f3e1d5c1afbf933fc34b98f227d0b686b02443c80ef0d174b440"
    assert make_key(tenant, ("a", 5)).id.hex() == "26dd12108c575512b4a7119304f5f635c24fea69be4df97378e16e0e5cb369f9"
    assert derived_key(bytes(32), 1, "charge") == "ow_ixbctlebjytcrhfuyex6wllq3vqh6tjd"


@pytest.mark.mission("B6")
@pytest.mark.rival(8)
@pytest.mark.fault("F2", "F4", "F6", "F7", "F8", "F9")
def test_keys_that_look_alike_to_some_store_are_different_keys() -> None:
    some_uuid = uuid.UUID(int=7)
    values = ["5", 5, 5.0, Decimal(5), b"5", ("5",), ["5"], "5 ", " 5", "5\0", "\0", "a", "A", "á", "a\u0301"]
    values += ["__x__", "a/b", "a", ("a:b", "c"), ("a", "b:c"), some_uuid, str(some_uuid), 0, False, 0.0]
    ids = {make_key(SCOPE, value).id for value in values}
    assert len(ids) == len(values) - 1  # "a" is there twice


@pytest.mark.rival(30)
@pytest.mark.fault("F5")
@pytest.mark.parametrize("value", [None, "", b"", (), [], {}, set(), bytearray()])
def test_an_empty_key_is_refused(value: object) -> None:
    with pytest.raises(MissingKey, match="shop/send_email is empty"):
        make_key(SCOPE, value)


@pytest.mark.fault("F1")
def test_a_key_of_a_megabyte_is_hashed_and_its_text_cut() -> None:
    one, other = (make_key(SCOPE, "k" * 1_000_000 + end) for end in "ab")
    assert len(one.id) == 32
    assert len(one.text) <= 200
    assert one.id != other.id
    assert one.text != other.text
    assert one.text[:100] == "k" * 100


@pytest.mark.fault("F3")
def test_a_lone_surrogate_is_refused_in_key_and_scope() -> None:
    with pytest.raises(InvalidKey, match=r"^key: .*surrogate"):
        make_key(SCOPE, "x\ud800")
    for parts in (("\ud800", "b", None), ("a", "\ud800", None), ("a", "b", "\ud800")):
        with pytest.raises(InvalidKey, match="surrogate"):
            Scope(*parts)


@pytest.mark.fault("F4")
def test_forms_of_unicode_are_two_keys_unless_asked_to_be_one() -> None:
    composed, decomposed = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    assert make_key(SCOPE, composed).id != make_key(SCOPE, decomposed).id
    assert make_key(SCOPE, composed, normalise="NFC") == make_key(SCOPE, decomposed, normalise="NFC")
    for wrap in (lambda text: (1, text), lambda text: ["mail:", text, ""]):
        one, other = (make_key(SCOPE, wrap(text), normalise="NFC").id for text in (composed, decomposed))
        assert one == other


def test_scopes_never_share_a_key() -> None:
    scopes = [
        Scope("a", "b"),
        Scope("a", "b", "c"),
        Scope("a", "b@c"),
        Scope("a/b", "c"),
        Scope("a", "b/c"),
        Scope("ab", "c"),
        Scope("a", "bc"),
        Scope("a", "b", "None"),
        Scope("a", "b%40c"),
    ]
    for one, other in combinations(scopes, 2):
        assert make_key(one, "k").id != make_key(other, "k").id
        assert one.text != other.text
    assert Scope("a", "b", "c").text == "a/b@c"
    assert Scope("a@x", "b/y", "c%z").text == "a%40x/b%2Fy@c%25z"


def test_a_part_of_a_scope_is_its_text_whatever_its_class() -> None:
    class Operation(str, enum.Enum):  # noqa: UP042 - the older way formats otherwise
        FRESH = "a-fresh-operation"

    by_enum = Scope("shop", Operation.FRESH)
    assert make_key(by_enum, 1).id == make_key(Scope("shop", "a-fresh-operation"), 1).id
    assert make_key(Scope("shop", "a-fresh-operation"), 1).id == make_key(by_enum, 1).id
    assert by_enum.text == "shop/a-fresh-operation"


@pytest.mark.fault("F5")
def test_an_empty_tenant_is_refused_and_not_taken_for_none() -> None:
    with pytest.raises(MissingKey, match="tenant"):
        Scope("a", "b", "")
    with pytest.raises(MissingKey, match="operation"):
        Scope("a", "")
    tenant: Any = 5
    with pytest.raises(InvalidKey, match="int, not str"):
        Scope("a", "b", tenant)


def test_a_long_tenant_is_cut_in_the_text_and_stays_distinguishable() -> None:
    one, other = (Scope("a", "b", "t" * 5000 + end) for end in "ab")
    assert len(one.text) <= 200
    assert one.text != other.text


def test_the_text_shows_no_control_bidi_or_invisible_characters() -> None:
    text = make_key(SCOPE, "a\nb\x1b[31m\u202eevil\u200b\u2028").text
    assert text == r"a\nb\x1b[31m\u202eevil\u200b\u2028"
    assert make_key(SCOPE, 1, "x\r\n").text == r"x\r\n"
    assert Scope("a", "b", "\n").text == r"a/b@\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("grüße", "grüße"),
        (5, "5"),
        (b"\0x", r"b'\x00x'"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (("a", 5), "(a, 5)"),
        (10**300, "int of 997 bits"),
    ],
)
def test_the_text_of_simple_values_is_readable(value: object, text: str) -> None:
    assert make_key(SCOPE, value).text == text


def test_the_text_of_other_values_is_a_hash_because_payloads_are_not_for_logs() -> None:
    key = make_key(SCOPE, {"password": "secret"})
    assert key.text == f"#{key.id.hex()[:16]}"


def test_a_given_text_does_not_change_the_identity() -> None:
    assert make_key(SCOPE, 5, "five").id == make_key(SCOPE, 5).id
    assert make_key(SCOPE, 5, "five") == Key(SCOPE, "five", make_key(SCOPE, 5).id)


def test_derived_keys_are_stable_differ_per_step_and_cycle_and_fit_any_remote() -> None:
    key = make_key(SCOPE, "order-1").id
    other = make_key(SCOPE, "order-2").id
    derived = {derived_key(k, cycle, step) for k in (key, other) for cycle in (1, 2) for step in ("charge", "mail")}
    assert len(derived) == 8
    assert derived_key(key, 1, "charge") == derived_key(key, 1, "charge")
    assert all(re.fullmatch(r"ow_[a-z2-7]{32}", each) for each in derived)
    with pytest.raises(MissingKey):
        derived_key(key, 1, "")
