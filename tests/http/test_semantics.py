"""How keys and requests are read from HTTP, without a server: by examples and by properties."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import InvalidKey, calendar, errors, forever, lasting, sliding
from onceward.http.semantics import (
    NOT_STORED,
    IdempotentRequest,
    decode_response,
    encode_response,
    fingerprint_request,
    parse_key,
    problem_for_error,
    window_header,
)
from onceward.http.statuses import RETRY_STATUSES

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1)
TOKEN = st.text(st.sampled_from("abcXYZ019-._~+/=:@"), min_size=1).map(str.encode)
GIVEN = ("", "=1", "=-1.5", "=a/b:c", '="x; y, \\" z"', "=:aGk=:", "=?1", "=@1700000000", '=%"f%c3%bc"')
PARAMETER = st.tuples(st.sampled_from((";", "; ")), st.sampled_from(("a", "*b", "c-1_.*")), st.sampled_from(GIVEN)).map(
    lambda parts: "".join(parts).encode()
)


def quoted(key: str) -> bytes:
    return b'"%b"' % key.replace("\\", "\\\\").replace('"', '\\"').encode()


@given(PRINTABLE, st.booleans(), st.integers(0, 2))
def test_every_string_of_a_structured_field_is_a_key_and_comes_back(key: str, bare: bool, spaces: int) -> None:
    assert parse_key(b" " * spaces + quoted(key) + b" " * spaces, bare=bare) == key


@given(st.binary(max_size=20))
def test_everything_else_is_refused_and_never_read_as_another_key(value: bytes) -> None:
    try:
        key = parse_key(value)
    except InvalidKey:
        return
    assert value.strip(b" ").startswith(quoted(key))
    assert value.strip(b" ")[len(quoted(key)) :].startswith(b";") or quoted(key) == value.strip(b" ")


@given(PRINTABLE, st.lists(PARAMETER, max_size=3).map(b"".join), st.booleans())
def test_parameters_of_a_key_are_ignored_because_the_field_has_none_of_its_own(
    key: str, parameters: bytes, bare: bool
) -> None:
    assert parse_key(quoted(key) + parameters, bare=bare) == key


@pytest.mark.parametrize(
    "value",
    [b"1" * 16, b"1.", b"1.2345", b"t\xe9", b"?2", b"?", b"@1.5", b'%"%G0"', b'"\\n"', b":*:", b"(1 2)", b""],
)
def test_an_invalid_parameter_value_makes_the_whole_key_malformed(value: bytes) -> None:
    with pytest.raises(InvalidKey):
        parse_key(b'"k";p=' + value)


@given(TOKEN)
def test_a_bare_key_is_the_same_as_the_quoted_one(value: bytes) -> None:
    assert parse_key(value, bare=True) == parse_key(b'"%b"' % value)
    with pytest.raises(InvalidKey):
        parse_key(value)


@given(st.binary(max_size=20))
def test_a_bare_key_never_holds_what_would_be_a_list_or_a_parameter(value: bytes) -> None:
    try:
        key = parse_key(value, bare=True)
    except InvalidKey:
        return
    if not value.strip(b" ").startswith(b'"'):
        assert not set(key) & set(' ",;\\\t')


TEXT = st.binary(max_size=3)
REQUESTS = st.builds(
    lambda who, how, *rest: (IdempotentRequest(who.decode("latin-1"), how.decode("latin-1"), *rest[:4]), rest[4]),
    TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, st.binary(min_size=1, max_size=2),
)  # fmt: skip


@pytest.mark.rival(16)
@given(REQUESTS, REQUESTS)
def test_two_requests_have_one_fingerprint_only_if_they_are_the_same(one: Any, other: Any) -> None:
    same = one == other
    assert (
        fingerprint_request(one[0], one[1], b"id").fingerprint
        == fingerprint_request(other[0], other[1], b"id").fingerprint
    ) is same


@pytest.mark.rival(16)
def test_a_boundary_between_two_parts_of_a_request_cannot_move() -> None:
    cases = [
        IdempotentRequest("a", "POST", b"h", b"/x", b"y", b"z"),
        IdempotentRequest("aP", "OST", b"h", b"/x", b"y", b"z"),
        IdempotentRequest("a", "POST/", b"h", b"x", b"y", b"z"),
        IdempotentRequest("a", "POST", b"h", b"/xy", b"", b"z"),
        IdempotentRequest("a", "POST", b"h", b"/x", b"yz", b""),
        IdempotentRequest("a", "POST", b"h", b"/", b"xy", b"z"),
        IdempotentRequest("ah", "POST", b"", b"/x", b"y", b"z"),
    ]
    for one, other in combinations(cases, 2):
        assert (
            fingerprint_request(one, b"body", b"id").fingerprint
            != fingerprint_request(other, b"body", b"id").fingerprint
        )


def test_short_hashes_of_two_keys_do_not_show_that_their_requests_are_equal() -> None:
    request = IdempotentRequest("a", "POST", b"h", b"/x", b"", b"")
    one, other = fingerprint_request(request, b"body", b"id 1"), fingerprint_request(request, b"body", b"id 2")
    assert one.fingerprint == other.fingerprint
    assert not set(one.parts.values()) & set(other.parts.values())


NAMES = st.text(st.sampled_from("abcXYZ-"), min_size=1, max_size=8).map(str.encode)
VALUES = st.binary(max_size=12).filter(lambda value: not set(value) & set(b"\r\n\0"))


@given(st.integers(200, 599), st.lists(st.tuples(NAMES, VALUES), max_size=6), st.binary(max_size=40))
def test_an_answer_comes_back_as_it_was_but_for_the_case_of_its_headers(
    status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    data = encode_response(status, headers, body)
    assert data is not None
    expected = [(name.lower(), value) for name, value in headers if name.lower() not in NOT_STORED]
    assert decode_response(data) == (status, expected, body)


PIECES = st.lists(
    st.sampled_from([b"a", b"x", b": ", b"\r\n", b"\n", b"\r", b"\0", b" ", b"\xff", b":"]), max_size=5
).map(b"".join)


@given(st.lists(st.tuples(PIECES, PIECES), max_size=3), st.binary(max_size=10))
def test_whatever_headers_an_application_makes_up_no_other_answer_comes_back(
    headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    data = encode_response(200, headers, body)
    if data is not None:
        found = decode_response(data)
        assert found.body == body
        assert all((name, value) in [(one.lower(), other) for one, other in headers] for name, value in found.headers)


def test_401_403_408_425_429_and_every_5xx_free_the_key_and_nothing_else_does() -> None:
    assert sorted(RETRY_STATUSES) == [401, 403, 408, 425, 429, *range(500, 600)]


@pytest.mark.parametrize(
    ("window", "header"),
    [
        (lasting("24h"), b"86400"),
        (sliding("1500ms"), b"2"),
        (forever, b"forever"),
        (calendar("Europe/Berlin"), b"calendar day in Europe/Berlin"),
    ],
)
def test_the_window_is_published_in_seconds_if_it_is_a_time(window: Any, header: bytes) -> None:
    assert window_header(window) == (b"idempotency-window", header)


def _every_error() -> list[type[errors.OncewardError]]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, errors.OncewardError)]


@pytest.mark.parametrize("kind", _every_error())
def test_every_error_has_a_problem_of_its_status_and_code(kind: type[errors.OncewardError]) -> None:
    problem = problem_for_error(kind)
    assert (problem.status, problem.code) == (kind.http_status, kind.code)
    assert problem.title
    assert problem.detail
