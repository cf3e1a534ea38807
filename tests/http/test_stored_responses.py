"""Which responses and headers are stored, and how bodies are compared: by setting, and by the parts of a form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import ConfigurationError
from onceward.http.multipart import MultipartHash, split_boundary
from onceward.http.statuses import RETRY_STATUSES
from tests.http.conftest import MakeSite
from tests.sites import Answer, Asked


def form(boundary: str, *parts: tuple[str, bytes]) -> bytes:
    lines = b"".join(
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (boundary.encode(), name.encode(), content)
        for name, content in parts
    )
    return lines + b"--%b--\r\n" % boundary.encode()


@pytest.mark.finding("N17")
def test_the_statuses_that_free_the_key_are_a_setting(make_site: MakeSite) -> None:
    def answers(asked: Asked) -> Answer:
        return int(asked.query), [], b"run %d" % len(site.runs)

    site = make_site(answers, retry_statuses=[*(RETRY_STATUSES - {500}), 402, 409])
    for status, runs in ((402, 2), (409, 2), (404, 1), (500, 1), (503, 2)):
        site.runs.clear()
        replies = [site.ask(f'"{status}"', query=b"%d" % status) for _ in range(2)]
        assert [reply.status for reply in replies] == [status, status]
        assert len(site.runs) == runs, status


@pytest.mark.finding("N17")
@pytest.mark.parametrize("status", [402, 422])
def test_a_refusal_that_frees_the_key_does_not_park_it(make_site: MakeSite, status: int) -> None:
    site = make_site(lambda _: (status, [], b""), retry_statuses=[status], after_crash="park")
    assert [site.ask().status for _ in range(2)] == [status, status]
    assert len(site.runs) == 2


@pytest.mark.finding("N17")
def test_headers_can_be_kept_out_of_the_store(make_site: MakeSite) -> None:
    headers = [(b"X-Session-Hint", b"secret"), (b"x-kept", b"1")]
    site = make_site(lambda _: (201, headers, b"done"), not_stored_headers=["x-session-hint"])
    first, second = site.ask(), site.ask()
    assert first.header("x-session-hint") == "secret"
    assert second.replayed
    assert (second.header("x-session-hint"), second.header("x-kept")) == (None, "1")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retry_statuses": [200]}, "cannot contain 200"),
        ({"retry_statuses": ["409"]}, "cannot contain '409'"),
        ({"not_stored_headers": ["a: b"]}, "cannot be sent in a header"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make_site: MakeSite, settings: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_site(**settings)


@pytest.mark.finding("N17")
def test_a_form_that_is_sent_again_with_another_boundary_is_the_same_request(make_site: MakeSite) -> None:
    site = make_site(lambda _: (201, [], b"uploaded"))

    def upload(boundary: str, *parts: tuple[str, bytes], kind: str = "multipart/form-data; boundary=") -> int:
        headers = [(b"content-type", (kind + boundary).encode())]
        return int(site.ask(body=form(boundary, *parts), headers=headers).status)

    file = ("file", b"a" * 200_000)
    assert upload("first", file, ("name", b"x")) == 201
    assert upload("another-one", file, ("name", b"x")) == 201
    assert upload("another-one", ("name", b"x"), file) == 422
    assert upload("another-one", file, ("name", b"y")) == 422
    assert upload("first", file, ("name", b"x"), kind="multipart/mixed; boundary=") == 422
    assert len(site.runs) == 1


def digest(boundary: str, body: bytes, sizes: list[int]) -> bytes:
    found = MultipartHash(boundary.encode())
    for size in sizes:
        found.update(body[:size])
        body = body[size:]
    found.update(body)
    return found.digest()


BOUNDARIES = st.text("ab-", min_size=1, max_size=4)
CONTENTS = st.lists(st.sampled_from([b"a", b"b", b"-", b"\r\n", b"--", b"\r", b"x"]), max_size=6).map(b"".join)
PARTS = st.lists(CONTENTS, max_size=3)


@pytest.mark.finding("N17")
@given(PARTS, PARTS, BOUNDARIES, BOUNDARIES, st.lists(st.integers(0, 5), max_size=5))
def test_bodies_are_equal_if_their_parts_are_whatever_the_chunks(
    some: list[bytes], others: list[bytes], one: str, other: str, sizes: list[int]
) -> None:
    def is_clear(parts: list[bytes]) -> bool:
        return not any(f"--{name}".encode() in b"\r\n%b\r\n--" % part for part in parts for name in (one, other))

    if is_clear(some) and is_clear(others):
        bodies = [
            form(name, *((str(number), part) for number, part in enumerate(parts)))
            for name, parts in ((one, some), (other, others))
        ]
        equal = digest(one, bodies[0], sizes) == digest(other, bodies[1], [])
        assert equal == (some == others)


def test_the_boundary_is_removed_from_the_content_type_and_nothing_else_is() -> None:
    assert split_boundary(b'Multipart/form-data; Boundary="a b"; charset=utf-8') == (
        b"Multipart/form-data; charset=utf-8",
        b"a b",
    )
    for kind in (b"text/plain; boundary=a", b"multipart/mixed", b"multipart/x; boundary=a; boundary=b"):
        assert split_boundary(kind) == (kind, b"")
