"""Google's signed tokens: only the right audience, issuer, address, signature and time pass; keys rotate."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from onceward import Once
from onceward.errors import ConfigurationError
from onceward.http.id_tokens import PublicKeys, key_client
from onceward.http.messages import InboundRequest
from onceward.http.oidc import KeysUnavailable, google_oidc
from onceward.http.push import PubSubPush
from tests.endpoints.helpers import push

AUDIENCE = "https://shop.example/push"
EMAIL = "push@project.iam.gserviceaccount.com"
KEYS = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in ("old", "new", "evil")}


class KeyServer:
    """Serves public keys, as Google does."""

    def __init__(self) -> None:
        self.published = ["old"]
        self.raw: bytes | None = None
        self.fetches = 0
        self.asked: threading.Event | None = None  # set by a request, which then waits for `go_on`
        self.go_on = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.fetches += 1
                if server.asked is not None:
                    server.asked.set()
                    server.go_on.wait(60)
                body = server.body()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/certs"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        keys = [
            {
                **jwt.algorithms.RSAAlgorithm.to_jwk(KEYS[name].public_key(), as_dict=True),
                "kid": name,
                "use": "sig",
                "alg": "RS256",
            }
            for name in self.published
        ]
        return json.dumps({"keys": keys}).encode()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[KeyServer]:
    server = KeyServer()
    yield server
    server.stop()


def token(key: str = "old", kid: str | None = None, *, algorithm: str = "RS256", **changed: Any) -> str:
    now = int(time.time())
    claims = {
        "aud": AUDIENCE,
        "iss": "https://accounts.google.com",
        "iat": now,
        "exp": now + 3600,
        "email": EMAIL,
        "email_verified": True,
        "sub": "1234",
        **changed,
    }
    present = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(present, KEYS[key], algorithm=algorithm, headers={"kid": kid or key})


def asked(value: str) -> InboundRequest:
    return InboundRequest("POST", {"authorization": value}, b"")


def checked(server: KeyServer, **choices: Any) -> Any:
    return google_oidc(AUDIENCE, email=EMAIL, keys_url=server.url, **choices)


@pytest.mark.finding("N46")
def test_a_push_with_a_token_of_google_is_processed_and_any_other_is_not(server: KeyServer) -> None:
    with Once("memory://") as once:
        endpoint = PubSubPush(once, "orders", check=checked(server))
        seen: list[Any] = []
        endpoint.on()(seen.append)
        good = push({"n": 1}, headers={"authorization": f"Bearer {token()}"})
        assert endpoint.respond(good).status == 200
        assert endpoint.respond(push({"n": 2}, "m2")).status == 401
        bad = push({"n": 3}, "m3", headers={"authorization": f"Bearer {token(email='evil@example.com')}"})
        assert endpoint.respond(bad).status == 401
        assert len(seen) == 1


def forged_with_hmac() -> str:
    """The public key as the secret of an HMAC: libraries that let the token choose its algorithm accept it."""
    public = (
        KEYS["old"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "old", "typ": "JWT"}).encode()).rstrip(b"=")
    body = token().split(".")[1].encode()
    mac = hmac.HMAC(public, hashes.SHA256())
    mac.update(head + b"." + body)
    return b".".join((head, body, base64.urlsafe_b64encode(mac.finalize()).rstrip(b"="))).decode()


def unsigned() -> str:
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "old"}).encode()).rstrip(b"=").decode()
    return f"{head}.{token().split('.')[1]}."


@pytest.mark.finding("N46")
@pytest.mark.parametrize(
    "forged",
    [
        lambda: "",
        lambda: "not a token",
        lambda: "a.b.c",
        lambda: "x" * 100_000,
        lambda: token("evil", "old"),
        lambda: token("evil"),
        lambda: token(algorithm="RS512"),
        lambda: token(algorithm="PS256"),
        forged_with_hmac,
        unsigned,
        lambda: token()[:-4],
        lambda: token(aud="https://other.example/push"),
        lambda: token(aud=None),
        lambda: token(aud=[]),
        lambda: token(iss="https://evil.example"),
        lambda: token(iss=None),
        lambda: token(exp=int(time.time()) - 60),
        lambda: token(exp=None),
        lambda: token(exp="soon"),
        lambda: token(iat=int(time.time()) + 600),
        lambda: token(nbf=int(time.time()) + 600),
        lambda: token(email="other@project.iam.gserviceaccount.com"),
        lambda: token(email=[EMAIL]),
        lambda: token(email=None),
        lambda: token(email_verified=False),
        lambda: token(email_verified="true"),
        lambda: token(email_verified=None),
    ],
)
def test_a_token_that_is_wrong_in_any_part_is_refused(server: KeyServer, forged: Any) -> None:
    check = checked(server)
    assert not check(asked(f"Bearer {forged()}"))
    assert check(asked(f"Bearer {token()}"))


def test_only_the_scheme_bearer_is_accepted(server: KeyServer) -> None:
    check = checked(server)
    assert check(asked(f"bearer  {token()} "))
    assert not check(asked(f"Basic {token()}"))
    assert not check(asked(token()))


@pytest.mark.finding("N46")
def test_keys_are_cached_and_a_new_key_is_fetched(server: KeyServer) -> None:
    check = checked(server, refresh_interval=0)
    for _ in range(5):
        assert check(asked(f"Bearer {token()}"))
    assert server.fetches == 1
    server.published = ["old", "new"]
    assert check(asked(f"Bearer {token('new')}"))
    assert server.fetches == 2
    server.published = ["new"]
    assert check(asked(f"Bearer {token('old')}")), "known until the cache expires"
    assert server.fetches == 2


@pytest.mark.finding("N46")
def test_a_key_that_is_no_longer_published_is_refused_once_the_cache_has_expired(server: KeyServer) -> None:
    check = checked(server, keep_keys=timedelta(microseconds=1))
    assert check(asked(f"Bearer {token()}"))
    server.published = ["new"]
    assert not check(asked(f"Bearer {token()}"))
    assert check(asked(f"Bearer {token('new')}"))


@pytest.mark.finding("N46")
def test_a_published_key_for_another_algorithm_is_not_used(server: KeyServer) -> None:
    server.raw = server.body().replace(b"RS256", b"RS512")
    assert not checked(server)(asked(f"Bearer {token(algorithm='RS512')}"))


@pytest.mark.finding("N46")
def test_a_token_that_is_far_too_long_is_refused_without_its_signature(server: KeyServer) -> None:
    assert not checked(server)(asked(f"Bearer {token(padding='x' * 9_000)}"))
    assert server.fetches == 0


@pytest.mark.finding("N46")
def test_unknown_keys_do_not_make_us_fetch_without_end(server: KeyServer) -> None:
    check = checked(server)
    assert check(asked(f"Bearer {token()}"))
    for n in range(20):
        assert not check(asked(f"Bearer {token('evil', f'kid{n}')}"))
    assert server.fetches == 1


@pytest.mark.finding("N46")
@pytest.mark.parametrize("raw", [b"<html>", b"[]", b'{"keys": 5}', b'{"keys": []}', b"\xff"])
def test_if_the_keys_cannot_be_read_the_answer_is_503_and_nothing_runs(server: KeyServer, raw: bytes) -> None:
    server.raw = raw
    with Once("memory://") as once:
        endpoint = PubSubPush(once, "orders", check=checked(server))
        endpoint.on()(_never)
        request = push({"n": 1}, headers={"authorization": f"Bearer {token()}"})
        assert endpoint.respond(request).status == 503
        server.raw = None
        endpoint = PubSubPush(once, "orders", check=google_oidc(AUDIENCE, email=EMAIL, keys_url="http://127.0.0.1:9/"))
        assert endpoint.respond(request).status == 503


@pytest.mark.finding("N46")
@pytest.mark.parametrize("raw", [b"<html>", b"[]", b'{"keys": 5}', b'{"keys": []}', b'"x"'])
def test_a_failed_fetch_for_an_unknown_key_is_503_and_is_not_repeated_at_once(server: KeyServer, raw: bytes) -> None:
    with Once("memory://") as once:
        endpoint = PubSubPush(once, "orders", check=checked(server, refresh_interval=0))
        endpoint.on()(lambda message: None)

        def status(sent: str) -> int:
            return endpoint.respond(push({"n": 1}, headers={"authorization": f"Bearer {sent}"})).status

        assert status(token()) == 200
        server.raw = raw
        assert status(token("new")) == 503
        assert status(token()) == 200, "the known keys stay"
        server.raw, server.published = None, ["old", "new"]
        assert status(token("new")) == 200

    keys, known = PublicKeys(key_client(server.url, "1h"), interval=3600), server.fetches
    server.raw = None
    assert keys.find("old")
    assert server.fetches == known + 1
    keys._next_fetch = 0  # the interval has passed
    server.raw = raw
    for n in range(20):
        with pytest.raises(KeysUnavailable):
            keys.find(f"unknown{n}")
    assert server.fetches == known + 2
    assert keys.find("old")


@pytest.mark.finding("N46")
def test_known_keys_do_not_wait_for_a_slow_fetch_of_unknown_ones(server: KeyServer) -> None:
    check = checked(server, refresh_interval=0)
    assert check(asked(f"Bearer {token()}"))
    server.asked, server.go_on = threading.Event(), threading.Event()
    unknown = threading.Thread(target=check, args=(asked(f"Bearer {token('new')}"),))
    unknown.start()
    try:
        assert server.asked.wait(60)
        answers: list[Any] = []
        known = threading.Thread(target=lambda: answers.append(check(asked(f"Bearer {token()}"))))
        known.start()
        known.join(4)  # less than the timeout of a fetch
        assert answers == [True]
    finally:
        server.go_on.set()
        unknown.join()
        known.join()


@pytest.mark.parametrize(
    "choices",
    [
        {"audience": ""},
        {"audience": []},
        {"email": ""},
        {"email": [EMAIL, ""]},
        {"issuers": []},
        {"keys_url": "http://keys.example/certs"},
        {"keys_url": "file:///etc/keys"},
        {"keep_keys": 0},
    ],
)
def test_settings_that_would_accept_tokens_of_others_are_refused(choices: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"audience": AUDIENCE, "email": EMAIL, **choices}
    with pytest.raises(ConfigurationError):
        google_oidc(settings.pop("audience"), **settings)


@pytest.mark.finding("N46")
def test_the_log_names_why_a_token_is_refused_and_the_response_does_not(server: KeyServer) -> None:
    now = int(time.time())
    refused = {
        "missing_token": "",
        "malformed_token": "Bearer no-token",
        "wrong_audience": f"Bearer {token(aud='https://other.example')}",
        "wrong_issuer": f"Bearer {token(iss='https://other.example')}",
        "wrong_email": f"Bearer {token(email='other@example.com')}",
        "unverified_email": f"Bearer {token(email_verified=False)}",
        "expired": f"Bearer {token(iat=now - 7200, exp=now - 3600)}",
        "unknown_key": f"Bearer {token('evil', 'unknown')}",
        "bad_signature": f"Bearer {token('evil', 'old')}",
    }
    events: list[Any] = []
    with Once("memory://") as once:
        once.subscribe(events.append)
        endpoint = PubSubPush(once, "orders", check=checked(server))
        endpoint.on()(_never)
        answers = [endpoint.respond(push({"n": 1}, headers={"authorization": sent})) for sent in refused.values()]
    assert [event.reason for event in events if event.name == "rejected"] == list(refused)
    assert {(answer.status, answer.body) for answer in answers} == {(401, answers[0].body)}
    assert not any(sent.removeprefix("Bearer ") in repr(events) for sent in refused.values() if sent)


def _never(message: Any) -> None:
    raise AssertionError(message)
