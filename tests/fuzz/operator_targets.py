"""Parsers of what operators, browsers, key servers and senders of JSON send, and of notes in the store."""

from __future__ import annotations

import json
import warnings
from base64 import b64decode, b64encode
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.warnings import InsecureKeyLengthWarning
from starlette.requests import Request

from onceward.administration.actions import Action
from onceward.administration.bulk import Preview, decode_preview
from onceward.administration.listing import decode_cursor
from onceward.cli.find import parse_cursor
from onceward.cli.program import CommandError
from onceward.console.auth import BasicAuth
from onceward.console.flash import COOKIE, Flashes
from onceward.errors import ConfigurationError, InvalidKey, ResultError
from onceward.http.id_tokens import KeysUnavailable, PublicKeys, verified_claims
from onceward.http.tokens import Refusal
from onceward.keys.jcs import parse_json_strict, rfc8785
from onceward.protocol.note import INPUT
from onceward.protocol.ordering import instant
from onceward.protocol.ports import SortOrder
from onceward.results.from_json import result_from_json
from onceward.results.stored_input import InputCodec
from tests.fuzz.target import Target

RECORD = b"r" * 32

# ── operators and browsers ──


def page_cursor(data: bytes) -> None:
    decode_cursor(data.decode("latin-1"))


def list_cursor(data: bytes) -> None:
    value, id = parse_cursor(data.decode("latin-1"), SortOrder.UPDATED)
    assert isinstance(value, int)
    assert isinstance(id, bytes)


def preview(data: bytes) -> None:
    decode_preview(data.decode("latin-1"))


def flash(data: bytes) -> None:
    cookie = COOKIE.encode() + b"=" + data
    Flashes().take(Request({"type": "http", "headers": [(b"cookie", cookie)]}))


USERS = BasicAuth({"ann": "a long enough password"})


def password(data: bytes) -> None:
    given = Request({"type": "http", "headers": [(b"authorization", b"Basic " + data)]})
    is_right = data == b64encode(b"ann:a long enough password")
    assert USERS(given) is None or is_right or b64decode(data) == b"ann:a long enough password"


def json_result(data: bytes) -> None:
    found = result_from_json(data.decode("utf-8", "replace"), dict[str, list[int]])
    assert all(isinstance(one, int) for values in found.values() for one in values)


# ── senders of JSON ──


def canonical_json(data: bytes) -> None:
    """The canonical form of the canonical form is the same."""
    canonical = rfc8785(parse_json_strict(data))
    assert rfc8785(parse_json_strict(canonical)) == canonical


def event_time(data: bytes) -> None:
    seconds, nanoseconds = instant(data.decode("utf-8", "replace"), "event time")
    assert isinstance(seconds, int)
    assert 0 <= nanoseconds < 1_000_000_000


# ── key servers ──

SIGNER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC = {**jwt.algorithms.RSAAlgorithm.to_jwk(SIGNER.public_key(), as_dict=True), "kid": "k", "use": "sig"}
TOKEN = jwt.encode({"aud": "other", "exp": 1}, SIGNER, algorithm="RS256", headers={"kid": "k"})


def key_set(data: bytes) -> None:
    """Whatever the key server sends, no token is accepted that is not signed for us."""

    class GivenKeys(jwt.PyJWKClient):
        def fetch_data(self) -> Any:
            found = json.loads(data)
            if self.jwk_set_cache is not None:
                self.jwk_set_cache.put(found)
            return found

    keys = PublicKeys(GivenKeys("https://keys.example"), interval=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureKeyLengthWarning)
        assert isinstance(verified_claims(keys, TOKEN, ["us"], ["google"], 0), Refusal)


# ── the store ──


def _stored(order_id: int, names: list[str]) -> None: ...


INPUTS = InputCodec(_stored, max_bytes=10_000, compress_from=None, cipher=None, accept_plain=True)


def stored_input(data: bytes) -> None:
    INPUTS.call(RECORD, {INPUT: data.decode("latin-1")})


TIMES = (b"2026-03-01T08:05:00.25Z", b"2026-03-01T08:05:00.123456789+02:00")

OPERATOR_TARGETS: dict[str, Target] = {
    "page_cursor": Target(page_cursor, (ConfigurationError,), (b"AAAB", b"")),
    "list_cursor": Target(
        list_cursor, (CommandError,), (b64encode(json.dumps(["updated", -1, RECORD.hex()]).encode()),)
    ),
    "preview": Target(preview, (ConfigurationError,), (Preview(Action(verb="retry"), [], []).encode().encode(),)),
    "flash": Target(flash, (), (b64encode(b"done") + b"." + b64encode("größer".encode()), b".")),
    "password": Target(password, (), (b64encode(b"ann:a long enough password"), b64encode(b"bob:x"))),
    "json_result": Target(json_result, (ConfigurationError,), (b'{"a":[1,2],"b":[]}',)),
    "canonical_json": Target(canonical_json, (InvalidKey,), (b'{"b":[1.5,true,null],"a":"\\u20ac","c":1e-7}',)),
    "event_time": Target(event_time, (InvalidKey,), TIMES),
    "key_set": Target(key_set, (KeysUnavailable,), (json.dumps({"keys": [PUBLIC]}).encode(),)),
    "stored_input": Target(stored_input, (ResultError,), (INPUTS.note(RECORD, "k", (7, ["a"]), {})[INPUT].encode(),)),
}
