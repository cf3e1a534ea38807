"""Parsers of bytes from outside, each with valid inputs to start from.

A target gets any bytes. It returns, or raises one of the errors that it declares; every other error is a bug. Some
targets also assert what must hold for every input.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from onceward.errors import ConfigurationError, InvalidKey, MissingKey, ResultError, SourceError, StoreBroken
from onceward.http import envelope, semantics, signatures
from onceward.http.id_tokens import PublicKeys, verified_claims
from onceward.http.messages import InboundRequest
from onceward.http.multipart import MultipartHash, split_boundary
from onceward.http.tokens import Refusal
from onceward.imports.open_rows import Format, open_rows
from onceward.imports.reject_file import escape_formula, unescape_formulas
from onceward.imports.scan import scan
from onceward.keys.key import parse_scope
from onceward.operations.settings_file import find_settings
from onceward.protocol.counters import decode_counts
from onceward.protocol.note import SAGA
from onceward.protocol.secrets import text_without_secrets, url_without_secrets
from onceward.results.codec import Codec
from onceward.results.encryption import AesGcm
from onceward.results.result_type import ResultType
from onceward.results.untyped import PLAIN_FIELDS
from onceward.sagas.journal import journal_from
from onceward.stores.registry import open_store
from tests.fuzz.console_targets import CONSOLE_TARGETS
from tests.fuzz.example_targets import EXAMPLE_TARGETS
from tests.fuzz.operator_targets import OPERATOR_TARGETS
from tests.fuzz.store_targets import STORE_TARGETS
from tests.fuzz.target import Target

RECORD = b"r" * 32


# ── HTTP ──

PUBSUB = json.dumps(
    {"message": {"messageId": "1", "data": "eyJhIjoxfQ==", "attributes": {"k": "v"}}, "subscription": "s"}
).encode()
CLOUDEVENT = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1},"data_base64":"eyJhIjoxfQ=="}'
HEADERS = b"ce-id: %C3%A4\nce-source: /s\nce-type: t\nce-specversion: 1.0\ncontent-type: application/json\n\n{}"


def http_request(data: bytes) -> InboundRequest:
    """Return a request with these headers, one a line, and the body after an empty line."""
    head, _, body = data.partition(b"\n\n")
    pairs = [line.partition(b":")[::2] for line in head.split(b"\n")]
    headers = [(name.decode("latin-1").strip(), value.decode("latin-1").strip()) for name, value in pairs]
    return InboundRequest("POST", headers, body)


def pubsub(data: bytes) -> None:
    found = envelope.parse_pubsub(InboundRequest("POST", {}, data))
    if not isinstance(found, str):
        found.decode()


def cloudevent(data: bytes) -> None:
    structured = InboundRequest("POST", {"content-type": envelope.STRUCTURED}, data)
    for request in (structured, http_request(data)):
        found = envelope.parse_cloudevent(request)
        if not isinstance(found, str):
            found.decode()
            found.message.id.encode()  # an id that two inputs could share has no encoding


SCHEMES = (
    signatures.stripe("secret"),
    signatures.github("secret"),
    signatures.slack("secret"),
    signatures.shopify("secret"),
    signatures.standard("whsec_c2VjcmV0"),
    signatures.signed("secret", header="x-s", event_id="x-id", timestamp="x-t"),
)
SIGNED = (
    b"stripe-signature: t=1,v1=ab\n\n{}",
    b"x-hub-signature-256: sha256=ab\nx-github-delivery: 1\n\n{}",
    b"x-slack-signature: v0=ab\nx-slack-request-timestamp: 1\n\npayload=%7B%7D&command=x",
    b"webhook-id: 1\nwebhook-timestamp: 1\nwebhook-signature: v1,ab v1,cd\n\n{}",
    b"x-s: ab\nx-t: 1\nx-id: 1\n\n{}",
)


def webhook(data: bytes) -> None:
    request = http_request(data)
    for scheme in SCHEMES:
        assert scheme.rejection_reason(request, now=1.0) is not None, "no input has a valid signature"
        for read in (scheme.handshake, scheme.event_id, scheme.event_type):
            try:
                read(request)
            except MissingKey:
                continue


def idempotency_key(data: bytes) -> None:
    for bare in (False, True):
        assert semantics.parse_key(data, bare=bare).isascii()


def stored_response(data: bytes) -> None:
    response = semantics.decode_response(data)
    for name, value in response.headers:
        assert b"\r" not in name + value
        assert b"\n" not in name + value


MULTIPART = (
    b"multipart/form-data; boundary=abc\n\n--abc\r\na: b\r\n\r\n1\r\n--abc\r\n\r\n2\r\n--abc--\r\n",
    b'multipart/mixed; charset=utf-8; boundary="a b"\n\n--a b\r\n\r\n\r\n--a \r\n--a b--',
)


def multipart(data: bytes) -> None:
    """Hash a body at once and byte by byte: both must give the same hash."""
    content_type, _, body = data.partition(b"\n\n")
    rest, boundary = split_boundary(content_type)
    if not boundary:
        assert rest == content_type
        return
    assert len(boundary) <= 70, "RFC 2046"
    whole, split = MultipartHash(boundary), MultipartHash(boundary)
    whole.update(body)
    for byte in body:
        split.update(bytes((byte,)))
    assert whole.digest() == split.digest()


SIGNER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class FixedKeys(jwt.PyJWKClient):
    """Public keys without a server."""

    def fetch_data(self) -> Any:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(SIGNER.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": "k", "use": "sig", "alg": "RS256"}]}


KEYS = PublicKeys(FixedKeys("https://keys.example"), interval=30)
TOKEN = jwt.encode({"aud": "other", "exp": 1}, SIGNER, algorithm="RS256", headers={"kid": "k"}).encode()


def oidc_token(data: bytes) -> None:
    claims = verified_claims(KEYS, data.decode("latin-1"), ["us"], ["google"], 0)
    assert isinstance(claims, Refusal), "no input has a valid signature for us"


# ── stored results ──

PLAIN = Codec(ResultType())
TYPED = Codec(ResultType(dict[str, list[int]]))
CIPHER = AesGcm({"k": b"0" * 32}, current="k")
VALUES: tuple[Any, ...] = (None, 7, "text", {"a": [1, 2]}, (1, {2}, b"x"), ["row"] * 3000, [[[]] * 50] * 50)


def stored(codec: Codec) -> tuple[bytes, ...]:
    return tuple(data for value in VALUES if (data := codec.encode(value, RECORD).data) is not None)


def stored_result(data: bytes) -> None:
    """Decode with a correct checksum too, as an attacker writes it."""
    fixed = data[:3] + zlib.crc32(data[:3] + data[7:]).to_bytes(4, "big") + data[7:]
    for one in (data, fixed):
        for codec in (PLAIN, PLAIN_FIELDS, TYPED):
            try:
                value = codec.decode(one, RECORD)
            except ResultError:
                continue
            assert codec is not TYPED or isinstance(value, dict)


def encrypted_result(data: bytes) -> None:
    if data not in SEALED:
        Codec(ResultType(), cipher=CIPHER).decode(data, RECORD)
        raise AssertionError("a changed result was accepted")


SEALED = stored(Codec(ResultType(), cipher=CIPHER))


# ── files ──

CSV = b'email,name\na@example.com,"A ""B"" C"\nb@example.com,=1+1\n'
NDJSON = b'{"email":"a@example.com","n":1.50,"tags":["x"]}\n{"email":"b@example.com"}\n'


def rows(kind: Format) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"rows.{kind}"
            path.write_bytes(data)
            with closing(open_rows(path, scan(path), kind)) as found:
                for row in found:
                    assert row.line > 0

    return read


def reject_cell(data: bytes) -> None:
    cell = data.decode("utf-8", "surrogateescape")
    escaped = escape_formula(cell)
    assert unescape_formulas([escaped]) == [cell]
    line = io.StringIO()
    csv.writer(line).writerow([3, escaped])
    for part in next(csv.reader(io.StringIO(line.getvalue(), newline=""), delimiter=";"), []):
        assert not part.startswith(("=", "+", "-", "@")), part


def settings_file(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "onceward.toml").write_bytes(data)
        find_settings(Path(folder))


# ── text ──


def store_url(data: bytes) -> None:
    url = data.decode("utf-8", "replace")
    text_without_secrets(url)
    url_without_secrets(url)
    if not url.startswith("firestore:"):  # looks for credentials on this machine
        open_store(url)


def scope_text(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    found = parse_scope(text)
    assert found is None or found.text == text


def journal(data: bytes) -> None:
    journal_from({SAGA: data.decode("utf-8", "surrogateescape")})


JOURNAL = b'{"cycle":1,"lines":[{"name":"a","progress":"done","token":1,"result":"wA=="}],"version":1}'
URLS = (
    b"postgresql://me:hunter2@db:5432/shop?connections=4",
    b"redis://me:hunter2@cache:6379/0?prefix=x",
    b"memory://?max_records=10",
    b"sqlite://:memory:?synchronous=NORMAL",
)

TARGETS: dict[str, Target] = {
    "idempotency_key": Target(idempotency_key, (InvalidKey, MissingKey), (b'"8e03978e-40d5"', b'"a";b=1', b"bare")),
    "pubsub": Target(pubsub, (), (PUBSUB,)),
    "cloudevent": Target(cloudevent, (), (CLOUDEVENT, HEADERS)),
    "webhook": Target(webhook, (), SIGNED),
    "multipart": Target(multipart, (), MULTIPART),
    "oidc_token": Target(oidc_token, (), (TOKEN,)),
    "stored_response": Target(stored_response, (ResultError,), (b"201\r\na: b\r\nc: d\r\n\r\nbody", b"200\r\n\r\n")),
    "stored_result": Target(stored_result, (), stored(PLAIN)),
    "encrypted_result": Target(encrypted_result, (ResultError,), SEALED),
    "csv": Target(rows("csv"), (SourceError,), (CSV, b"\xff\xfe" + CSV.decode().encode("utf-16-le"))),
    "ndjson": Target(rows("ndjson"), (SourceError,), (NDJSON,)),
    "reject_cell": Target(reject_cell, (csv.Error,), (b"a;=1+1", b"'=x", b'";"=1', b"+49 30", b"a\n=b")),
    "settings_file": Target(
        settings_file, (ConfigurationError,), (b'store = "memory://"\n[operations.email]\nwindow = "24h"\n',)
    ),
    "store_url": Target(store_url, (ConfigurationError,), URLS),
    "scope": Target(scope_text, (), (b"shop/charge@tenant", b"a%2Fb/c%5Cn")),
    "journal": Target(journal, (ResultError,), (JOURNAL,)),
    "counters": Target(decode_counts, (StoreBroken,), (b'{"shop/charge":{"executed":1}}',)),
    **OPERATOR_TARGETS,
    **STORE_TARGETS,
    **CONSOLE_TARGETS,
    **EXAMPLE_TARGETS,
}
