"""The contract of the middleware, the same for ASGI on `AsyncOnce` and WSGI on `Once`."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import ConfigurationError, Once, not_applied, verify
from onceward.http import asgi, wsgi
from onceward.stores import MemoryStore
from tests.http.conftest import MakeSite
from tests.sites import JSON, Site


@pytest.mark.mission("B6")
def test_the_same_request_twice_is_worked_on_once_and_answered_twice(site: Site) -> None:
    first, second = site.ask(), site.ask()
    assert (first.status, first.body) == (second.status, second.body) == (201, b'{"id": 1}')
    assert not first.replayed
    assert second.replayed
    assert len(site.runs) == 1


@pytest.mark.mission("B6")
def test_another_key_is_other_work(site: Site) -> None:
    assert not site.ask('"k1"').replayed
    assert not site.ask('"k2"').replayed
    assert len(site.runs) == 2


def test_every_answer_says_how_long_its_key_is_known(make_site: MakeSite) -> None:
    site = make_site(window="2h")
    assert [site.ask().header("idempotency-window") for _ in range(2)] == ["7200", "7200"]


@pytest.mark.rival(14)
def test_a_replay_has_the_headers_of_the_first_answer_repeated_ones_included(make_site: MakeSite) -> None:
    headers = [
        JSON,
        (b"link", b"</a>; rel=next"),
        (b"vary", b"accept"),
        (b"link", b"</b>; rel=last"),
        (b"x-empty", b""),
    ]
    site = make_site(lambda asked: (200, headers, b"\x00\xff binary \r\n\r\n body"))
    first, second = site.ask(), site.ask()
    assert first.headers[: len(headers)] == headers
    assert second.headers[: len(headers)] == headers
    assert second.body == first.body == b"\x00\xff binary \r\n\r\n body"


@pytest.mark.rival(14)
def test_cookies_and_what_belongs_to_a_connection_are_given_once_and_not_kept(make_site: MakeSite) -> None:
    headers = [
        JSON,
        (b"set-cookie", b"session=secret"),
        (b"Set-Cookie", b"other=secret"),
        (b"x-of-this-connection", b"1"),
        (b"connection", b"close, X-Of-This-Connection"),
        (b"keep-alive", b"timeout=5"),
        (b"trailer", b"x"),
        (b"upgrade", b"h2c"),
    ]
    site = make_site(lambda asked: (200, headers, b"{}"))
    assert site.ask().headers[: len(headers)] == headers
    replay = site.ask()
    assert replay.replayed
    assert [name for name, _ in replay.headers] == [b"content-type", b"idempotency-replayed", b"idempotency-window"]


def test_people_find_the_record_under_its_principal_and_its_key_and_can_read_the_answer(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (201, [JSON], b'{"id": 1}'))
    site.ask()
    entry = site.read("k1", tenant="alice")
    assert entry is not None
    assert entry.value == b'201\r\ncontent-type: application/json\r\n\r\n{"id": 1}'
    assert site.read("k1", tenant="bob") is None


# ── what is refused ──


@pytest.mark.fault("F78", "F5")
def test_a_required_key_that_is_missing_is_a_400_that_says_where_to_read_more(make_site: MakeSite) -> None:
    site = make_site(documentation="https://example.com/keys")
    reply = site.ask(None)
    assert reply.status == 400
    assert reply.problem["code"] == "missing_key"
    assert reply.problem["type"] == "https://example.com/keys"
    assert reply.header("link") == '<https://example.com/keys>; rel="describedby"'
    assert site.runs == []


MALFORMED = [
    "",
    '"',
    '""',
    "k1",
    '"k1',
    'k1"',
    "k 1",
    '"a", "b"',
    '"a" ;p=1',
    '"a";',
    '"a";P=1',
    '"a";p=',
    '"a";p="',
    '"a";p=1;',
    '"a";p=1, "b"',
    "'k1'",
    '"k\\n"',
    '"k\x01"',
    '"k\xe9"',
    "1",
    ":aGk=:",
]


@pytest.mark.fault("F78", "F5")
@pytest.mark.parametrize("key", MALFORMED)
def test_a_malformed_key_is_a_400(site: Site, key: str) -> None:
    reply = site.ask(key)
    assert reply.status == 400
    assert reply.problem["code"] in ("invalid_key", "missing_key")
    assert site.runs == []


@pytest.mark.fault("F78")
def test_a_key_that_comes_twice_is_a_400(site: Site) -> None:
    reply = site.ask('"a"', headers=[JSON, (b"idempotency-key", b'"a"')])
    assert (reply.status, reply.problem["code"]) == (400, "invalid_key")
    assert site.runs == []


@pytest.mark.rival(30)
def test_a_method_in_small_letters_which_some_frameworks_take_for_the_large_ones_needs_a_key_too(site: Site) -> None:
    assert site.ask(None, method="post").status == 400
    assert site.runs == []


@pytest.mark.rival(30)
@pytest.mark.parametrize("path", ["/files/", "/files/a", "/files/a/b"])
def test_a_route_for_any_number_of_segments_means_none_of_them_too(make_site: MakeSite, path: str) -> None:
    site = make_site(required=["/files/{rest:path}"])
    assert site.ask(None, path=path).status == 400
    assert site.runs == []


def test_bare_keys_are_taken_if_that_is_declared_and_are_the_same_as_quoted_ones(make_site: MakeSite) -> None:
    site = make_site(bare_keys=True)
    assert site.ask("8e03978e-40d5").status == 201
    assert site.ask('"8e03978e-40d5"').replayed
    for key in ("a, b", "a b", "", '"a'):
        assert site.ask(key).status == 400, key
    assert len(site.runs) == 1


def test_without_a_principal_a_route_with_keys_is_a_401_and_never_anonymous(make_site: MakeSite) -> None:
    site = make_site(challenge="Bearer")
    for key in ('"k1"', None, "malformed"):
        reply = site.ask(key, user=None)
        assert (reply.status, reply.problem["code"]) == (401, "no_principal")
        assert reply.header("www-authenticate") == "Bearer"
    assert site.ask(user="").status == 401
    assert site.ask(user=None, path="/notes/1").status == 401, "a key without a principal protects nothing"
    assert site.runs == []


@pytest.mark.rival(16)
def test_the_key_of_another_user_is_another_key(site: Site) -> None:
    site.handler = lambda asked: (200, [], b"for %d" % len(site.runs))
    assert site.ask(user="alice").body == b"for 1"
    assert site.ask(user="bob").body == b"for 2"
    assert site.ask(user="alice").body == b"for 1"


@pytest.mark.rival(16)
@pytest.mark.fault("F78", "F18")
@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({"body": b'{"cents": 6}'}, ["body"]),
        ({"path": "/orders/1/pay"}, ["target"]),
        ({"query": b"a=1"}, ["target"]),
        ({"method": "PATCH"}, ["target"]),
        ({"headers": [(b"content-type", b"text/plain")]}, ["content_type"]),
        ({"body": b"", "query": b"a"}, ["target", "body"]),
    ],
)
def test_the_same_key_with_another_request_is_a_422_that_names_what_differs(
    site: Site, other: dict[str, Any], differs: list[str]
) -> None:
    site.ask()
    reply = site.ask(**other)
    assert (reply.status, reply.problem["code"]) == (422, "payload_mismatch")
    assert reply.problem["differs"] == differs
    assert len(site.runs) == 1


def test_a_body_over_the_limit_is_a_413_and_nothing_is_claimed(make_site: MakeSite) -> None:
    site = make_site(max_body=10)
    assert site.ask(body=b"x" * 10).status == 201
    reply = site.ask('"k2"', body=b"x" * 11)
    assert (reply.status, reply.problem["code"]) == (413, "body_too_large")
    assert site.ask('"k2"', body=[b"x" * 6, b"x" * 6]).status == 413
    assert site.ask('"k2"', body=b"x").status == 201, "the key was not used"


# ── requests that the middleware ignores ──


@pytest.mark.fault("F77")
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_other_methods_are_not_looked_at_even_with_a_key(site: Site, method: str) -> None:
    for _ in range(2):
        assert not site.ask(method=method).replayed
    assert site.ask("malformed", method=method, user=None).status == 201
    assert len(site.runs) == 3


@pytest.mark.fault("F77")
def test_other_routes_and_optional_ones_without_a_key_are_not_looked_at(site: Site) -> None:
    for path in ("/other", "/pay/more", "/orders/1/2/pay", "/"):
        assert site.ask("malformed", path=path, user=None).status == 201
    assert site.ask(None, path="/notes/1").status == 201
    assert not site.ask(None, path="/notes/1").replayed
    assert site.ask(path="/notes/1/2").status == 201
    assert site.ask(path="/notes/1/2").replayed


# ── choices ──


@pytest.mark.parametrize(
    "choices",
    [
        {"required": [], "optional": []},
        {"required": ["pay"]},
        {"methods": ["GET", "POST"]},
        {"methods": ["post"]},
        {"principal": None},
        {"principal": "alice"},
        {"windows": "1h"},
        {"store_result": False},
        {"lease": 0},
        {"stall_timeout": 0},
        {"documentation": "https://example.com/schlüssel"},
        {"documentation": "https://example.com/\r\nx: y"},
        {"documentation": "https://example.com/>; rel=x"},
        {"challenge": "Bearer realm=für"},
        {"challenge": "Bearer\r\nx: y"},
    ],
)
def test_a_choice_that_cannot_work_is_refused_when_it_is_declared(make_site: MakeSite, choices: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make_site(**choices)


def test_a_client_that_looks_up_every_effect_is_refused_as_the_choice_itself_would_be(make_site: MakeSite) -> None:
    with pytest.raises(ConfigurationError, match="verify"):
        make_site(client={"after_crash": verify(lambda: not_applied)})
    make_site(client={"after_crash": verify(lambda: not_applied)}, after_crash="rerun")


def test_a_client_of_the_other_kind_is_refused_or_replaced_by_its_async_client() -> None:
    chosen: Any = {"principal": lambda request: "a", "optional": ["*"]}
    app: Any = object()
    with Once(MemoryStore()) as once:
        asgi.IdempotencyMiddleware(app, once, **chosen)
        with pytest.raises(ConfigurationError, match="tenant"):
            wsgi.IdempotencyMiddleware(app, once.using(tenant="acme"), **chosen)
    for middleware in (asgi.IdempotencyMiddleware, wsgi.IdempotencyMiddleware):
        with pytest.raises(ConfigurationError):
            middleware(app, "memory://", **chosen)  # type: ignore[arg-type]  # that is the point


def test_a_principal_that_is_not_a_string_is_an_error(make_site: MakeSite) -> None:
    site = make_site(principal=lambda request: 5)
    with pytest.raises(ConfigurationError, match="principal"):
        site.ask()
