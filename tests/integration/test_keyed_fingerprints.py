"""With a secret key, a reader of the store cannot test guesses about a payload."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pytest

from onceward import Once, PayloadMismatch
from onceward.errors import ConfigurationError
from onceward.http.push import PubSubPush
from onceward.keys.fingerprint import fingerprint, hash_arguments
from onceward.stores import MemoryStore
from tests.endpoints.helpers import push
from tests.sites import SITES

SECRET = b"s" * 32
PIN = "4711"


def guesses() -> list[dict[str, Any]]:
    return [{"pin": "".join(digits)} for digits in itertools.product("0123456789", repeat=4)]


def found_by_guessing(once: Once, key: str) -> bool:
    entry = once.read(key)
    assert entry is not None
    record = entry.record
    parts = {guess["pin"] for guess in guesses() if hash_arguments(guess, record.id) == dict(record.arguments)}
    wholes = {guess["pin"] for guess in guesses() if fingerprint(guess) == record.fingerprint}
    return PIN in parts | wholes


@pytest.mark.finding("N46")
@pytest.mark.parametrize(("secret", "found"), [(None, True), (SECRET, False)])
def test_a_small_secret_is_found_by_guessing_unless_fingerprints_are_keyed(secret: bytes | None, found: bool) -> None:
    with Once("memory://", fingerprint_key=secret) as once:
        with once.claim("login", payload={"pin": PIN}):
            pass
        assert found_by_guessing(once, "login") is found


@pytest.mark.finding("N46")
@pytest.mark.parametrize("derive", [lambda once: once, lambda once: once.using(window="1h")])
def test_a_different_payload_is_still_a_mismatch_that_names_the_argument(derive: Any) -> None:
    with Once("memory://", fingerprint_key=SECRET) as plain:
        once: Once = derive(plain)

        @once(key="login:{user}")
        def login(user: str, pin: str) -> str:
            return user

        login("anna", PIN)
        assert login("anna", PIN) == "anna"
        with pytest.raises(PayloadMismatch) as refused:
            login("anna", "0000")
        assert refused.value.arguments == ("pin",)


@pytest.mark.finding("N46")
def test_every_surface_uses_the_key() -> None:
    """The same deliveries, with and without a key: no fingerprint and no short hash is the same."""
    seen: list[dict[bytes, tuple[Any, Any]]] = []
    for secret in (None, SECRET):
        store = MemoryStore()
        with Once(store, fingerprint_key=secret) as once:
            once.run("run", len, "abc")
            with once.claim("block", payload={"n": 1}):
                pass
            decorated = once(key="decorated:{n}")(_decorated)
            decorated(1, "x")
            endpoint = PubSubPush(once, "orders", check=None)
            endpoint.on()(lambda message: None)
            assert endpoint.respond(push({"n": 1})).status == 200
            entries = [once.read("run"), once.read("block"), decorated.read(1, "x"), once.read("m1", name="orders")]
            records = [entry.record for entry in entries if entry is not None]
            seen.append({one.id: (one.fingerprint, dict(one.arguments)) for one in records})
    plain, keyed = seen
    assert len(plain) == 4
    assert plain.keys() == keyed.keys()
    for id, (whole, parts) in plain.items():
        assert whole != keyed[id][0]
        assert all(part != keyed[id][1][name] for name, part in parts.items())


@pytest.mark.finding("N46")
@pytest.mark.parametrize("kind", SITES)
def test_http_requests_use_the_key(kind: str) -> None:
    found = []
    for secret in (None, SECRET):
        site = SITES[kind](client={"fingerprint_key": secret})
        assert site.ask().status == 201
        assert site.ask().replayed
        assert site.ask(body=b"other").problem["differs"] == ["body"]
        entry = site.read("k1", tenant="alice")
        assert entry is not None
        found.append((entry.record.fingerprint, *dict(entry.record.arguments).values()))
        site.close()
    assert all(plain != keyed for plain, keyed in zip(*found, strict=True))


@pytest.mark.parametrize("key", ["text", b"", b"short", 5])
def test_a_key_that_protects_nothing_is_refused(key: Any) -> None:
    with pytest.raises(ConfigurationError, match="at least 16 secret bytes"):
        Once("memory://", fingerprint_key=key)


def test_the_key_is_neither_shown_nor_pickled() -> None:
    with Once("memory://", fingerprint_key=SECRET) as once:
        assert "sss" not in repr(once)
        with pytest.raises(TypeError, match="fingerprint_key"):
            pickle.dumps(once)


def _decorated(n: int, text: str) -> int:
    return n


@pytest.mark.finding("N28")
@pytest.mark.parametrize("kind", SITES)
def test_a_retry_of_an_http_request_after_a_changed_key_is_a_mismatch_that_names_the_cause(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    for secret, status in ((SECRET, 201), (b"t" * 32, 422)):
        site = SITES[kind](store=store, client={"fingerprint_key": secret})
        assert site.ask().status == status
        site.close()
    assert any("mismatch" in one and "fingerprint_key has changed" in one for one in caplog.messages)
