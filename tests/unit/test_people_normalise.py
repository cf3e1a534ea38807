"""Normalisers: they make values comparable; spellings of the same value become equal, others do not."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.people import normalise
from onceward.people.normalise.country_names import NAMES

SPELLINGS = [
    "anna@example.com",
    "  Anna@Example.COM \n",
    "mailto:anna@example.com",
    "MAILTO:Anna%40example.com?subject=hi",
    "Anna Schmidt <anna@example.com>",
    '"Schmidt, Anna" <mailto:anna@example.com>',
    "<anna@example.com>",
    "anna@example.com.",
]


@pytest.mark.mission("D2")
@pytest.mark.parametrize("text", SPELLINGS)
def test_an_address_is_the_same_however_it_is_written(text: str) -> None:
    assert normalise.email(text) == "anna@example.com"


def test_an_address_with_a_bracket_that_is_never_closed_takes_no_longer_than_another() -> None:
    """A second and more each, if blanks may be shared out between parts of a pattern: this test would not end."""
    for number in range(500):
        with pytest.raises(ValueError, match="has no @"):
            normalise.email(f"{number}<{' ' * 980}x")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("jörg@bücher.example", "jörg@xn--bcher-kva.example"),
        ("jo\u0308rg@BÜCHER.example", "jörg@xn--bcher-kva.example"),
        ("anna@xn--bcher-kva.example", "anna@xn--bcher-kva.example"),
        ("anna@bücher.example", "anna@xn--bcher-kva.example"),
        ("o'brien+news@mail.example.co.uk", "o'brien+news@mail.example.co.uk"),
        ("a@host.test", "a@host.test"),
        ("a@intern.local", "a@intern.local"),
    ],
)
def test_other_letters_are_composed_and_domains_are_written_in_ascii(text: str, key: str) -> None:
    assert normalise.email(text) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "anna",
        "anna@",
        "@example.com",
        "anna@example",
        "anna@@example.com",
        "anna@exa mple.com",
        "a..b@example.com",
        "anna@-example.com",
        "anna@10.0.0.1",
        f"{'a' * 65}@example.com",
        f"anna@{'a.' * 130}com",
        "x" * 10_000_000,
    ],
)
def test_what_is_no_address_says_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|@"):
        normalise.email(text)


def test_no_address_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a network look-up")

    monkeypatch.setattr(socket, "socket", forbidden)
    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    assert normalise.email("jörg@bücher.example") == "jörg@xn--bcher-kva.example"


def test_rules_of_providers_are_an_option() -> None:
    assert normalise.email("A.nna+news@googlemail.com") == "a.nna+news@googlemail.com"
    assert normalise.email_of_mailbox("A.nna+news@googlemail.com") == "anna@gmail.com"
    assert normalise.email_of_mailbox("a.nna+news@example.com") == "a.nna+news@example.com"
    assert normalise.email_of_mailbox("a.nna+news@outlook.com") == "a.nna@outlook.com"


@given(st.emails())
def test_a_key_is_its_own_key(address: str) -> None:
    key = normalise.email(address)
    assert normalise.email(key) == key
    assert normalise.email_of_mailbox(normalise.email_of_mailbox(key)) == normalise.email_of_mailbox(key)


@given(st.text(max_size=60))
def test_folding_twice_is_folding_once(text: str) -> None:
    assert normalise.fold(normalise.fold(text)) == normalise.fold(text)
    assert normalise.trimmed(normalise.trimmed(text)) == normalise.trimmed(text)


@pytest.mark.parametrize(
    ("text", "given_name", "surname"),
    [
        ("Anna Maria Schmidt", "anna maria", "schmidt"),
        ("Schmidt, Anna Maria", "anna maria", "schmidt"),
        ("Dr. José  O'Brien", "jose", "obrien"),
        ("MÜLLER, Jörg", "jorg", "muller"),
        ("Łukasz Øster", "lukasz", "oster"),
        ("Plato", "", "plato"),
        ("李 小龍", "李", "小龍"),
    ],
)
def test_a_full_name_has_its_parts(text: str, given_name: str, surname: str) -> None:
    assert normalise.full_name(text) == (given_name, surname)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Müller & Söhne GmbH & Co. KG", "muller sohne"),
        ("ACME Sp. z o.o.", "acme"),
        ("Acme, Inc.", "acme"),
        ("The Acme Company Ltd", "acme"),
        ("Limited", "limited"),
        ("Banco Santander S.A.", "banco santander"),
    ],
)
def test_the_legal_form_of_a_company_does_not_count(text: str, key: str) -> None:
    assert normalise.company(text) == key


@pytest.mark.parametrize("text", ["Germany", "DE", "deu", " Deutschland ", "Allemagne", "GERMANY"])
def test_a_country_has_one_code_in_every_language(text: str) -> None:
    assert normalise.country(text) == "DE"


def test_other_countries_are_others_and_what_is_none_stays() -> None:
    assert [normalise.country(text) for text in ("UK", "England", "U.S.A.", "Österreich", "Utopia")] == [
        *("GB", "GB", "US", "AT", "utopia")
    ]


def test_phone_numbers_are_written_in_international_format() -> None:
    assert normalise.phone("0171 / 555 1234", "DE") == "+491715551234"
    assert normalise.phone("+49 (0)171 5551234") == "+491715551234"
    with pytest.raises(ValueError, match="not a phone number"):
        normalise.phone("0171 555 1234")  # of which country?


@pytest.mark.parametrize(
    "text", ["1980-01-31", "19800131", "31.01.1980", "31/1/1980", "1/31/1980", "1980-01-31T00:00:00Z"]
)
def test_a_date_of_birth_is_one_date(text: str) -> None:
    assert normalise.birth_date(text) == "1980-01-31"


def test_places_are_spelt_out() -> None:
    assert normalise.city("St. Gallen (SG)") == "saint gallen"
    assert normalise.postcode("sw1a 1aa") == "sw1a1aa"
    assert normalise.street("12 Main St.") == "12 main street"
    assert normalise.street("Hauptstr. 5") == "hauptstrasse 5"


def test_the_table_of_countries_has_each_name_once_and_folded() -> None:
    lines = [line.split(":") for line in NAMES.strip().splitlines()]
    owners: dict[str, set[str]] = {}
    for code, three, names in lines:
        for name in (code.lower(), three.lower(), *names.split(",")):
            assert normalise.fold(name) == name
            owners.setdefault(name, set()).add(code)
    assert {name: codes for name, codes in owners.items() if len(codes) > 1} == {}
    assert len({code for code, _, _ in lines}) == len({three for _, three, _ in lines}) == 249
