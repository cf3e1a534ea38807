"""examples/outreach as a service: replies and enrichments over HTTP, and mail over TLS with a login."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import sqlite3
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from standardwebhooks import Webhook as Signer

from examples.outreach.endpoint import Endpoint
from examples.outreach.mail import MailServer, write_mail
from examples.outreach.outside import Outside
from tests.integration.outreach_environment import ANNA, opened
from tests.services.running import Service, started, wait_until_ready

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
TOKEN = {"Authorization": "Bearer of-the-provider"}
REPLY = b"From: anna@osterholt.example\r\nMessage-ID: <1@mail.example>\r\nSubject: Yes\r\n\r\nyes\r\n"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with opened(tmp_path) as env:
        assert env.worker().import_prospect(**ANNA)["id"] == "p1"
    with (
        Outside(tmp_path / "remote.db") as outside,
        started(
            tmp_path,
            "examples.outreach", "serve", "--port", "0",
            OUTREACH_DATABASE=f"sqlite:///{tmp_path}/outreach.db",
            OUTREACH_SMTP=outside.smtp,
            OUTREACH_API="http://127.0.0.1:1",  # only the pager is used here
            OUTREACH_PAGER=outside.api,
            OUTREACH_REPLIES_TOKEN="of-the-provider",
            OUTREACH_ENRICHMENT_SECRET=SECRET,
        ) as running,
    ):  # fmt: skip
        wait_until_ready(running)
        yield running


def rows(folder: Path, statement: str) -> list[Any]:
    with sqlite3.connect(folder / "outreach.db") as connection:
        return connection.execute(statement).fetchall()


@pytest.mark.finding("N55", "N56")
def test_a_reply_is_stored_once_as_raw_mail_and_as_json(service: Service, tmp_path: Path) -> None:
    with httpx.Client(base_url=service.url, headers=TOKEN) as client:
        raw = [client.post("/replies", content=REPLY, headers={"Content-Type": "message/rfc822"}) for _ in range(2)]
        assert [one.json() for one in raw] == [{"processed": True}, {"duplicate": True}]
        parsed = {"message_id": "<1@mail.example>", "sender": "anna@osterholt.example", "subject": "Yes", "text": "yes"}
        assert client.post("/replies", json=parsed).json() == {"duplicate": True}
        assert client.post("/replies", json=parsed | {"message_id": "1@mail.example"}).json() == {"duplicate": True}
        assert client.post("/replies", json=parsed | {"message_id": "<2@mail.example>"}).json() == {"processed": True}
        named = {"sender": "Anna <ANNA@osterholt.example>", "message_id": ""}  # without an id, it is never a duplicate
        assert client.post("/replies", json=parsed | named).json() == {"processed": True}
        assert client.post("/replies", json={"subject": 7}).status_code == 400
    assert httpx.post(f"{service.url}/replies", content=REPLY).status_code == 401
    assert rows(tmp_path, "SELECT replies FROM prospects") == [(3,)]
    with sqlite3.connect(tmp_path / "remote.db") as connection:
        assert connection.execute("SELECT count(*), max(asked) FROM alerts").fetchall() == [(3, 1)]
    assert service.stop() == 0


@pytest.mark.finding("N55")
def test_an_enrichment_by_webhook_is_stored_once_and_only_if_it_is_signed(service: Service, tmp_path: Path) -> None:
    def send(id: str, body: dict[str, str]) -> httpx.Response:
        data, now = json.dumps(body), datetime.now(UTC)
        signature = Signer(SECRET).sign(id, now, data)
        headers = {"webhook-id": id, "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
        return httpx.post(f"{service.url}/webhooks/enrichment", content=data, headers=headers)

    found = {"prospect_id": "p1", "type": "website", "found": "https://osterholt.example"}
    assert [send("event-1", found).status_code for _ in range(2)] == [200, 200]
    known = {"skipped": True, "reason": "already_known"}
    assert send("event-2", found | {"found": "https://other.example"}).json() == known
    assert rows(tmp_path, "SELECT website FROM prospects") == [("https://osterholt.example",)]
    for number, wrong in enumerate(({"type": "shoe size"}, {"type": "email", "found": "none"}, {"found": "\0"}), 3):
        assert send(f"event-{number}", found | wrong).status_code == 400
    assert httpx.post(f"{service.url}/webhooks/enrichment", json=found).status_code == 403


@pytest.mark.finding("N34")
def test_an_empty_token_is_no_token(tmp_path: Path) -> None:
    with opened(tmp_path) as env:
        transport = httpx.WSGITransport(Endpoint(env.worker(), "", ""))
        with httpx.Client(transport=transport, base_url="http://outreach") as client:
            assert client.post("/replies", content=REPLY, headers={"Authorization": "Bearer "}).status_code == 404
            assert client.post("/webhooks/enrichment", content=b"{}").status_code == 404


# ── mail over TLS ──


def certificate(folder: Path) -> ssl.SSLContext:
    """Create a certificate for 127.0.0.1 that only `folder/ca.pem` knows."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context


class Received:
    """What the mail server got."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 (aiosmtpd's name)
        self.mails.append(envelope.content)
        return "250 kept"


def is_known(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: object) -> AuthResult:
    right = isinstance(data, LoginPassword) and (data.login, data.password) == (b"anna", b"p@ss")
    return AuthResult(success=right)


@contextmanager
def mail_server(kind: str, context: ssl.SSLContext, received: Received) -> Iterator[int]:
    """Serve SMTP with TLS, from the start or by STARTTLS. A login is required."""
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        starttls: dict[str, Any] = {"tls_context": context, "require_starttls": True} if kind == "smtp" else {}

        def protocol() -> SMTP:
            return SMTP(
                received, authenticator=is_known, auth_required=True, auth_require_tls=kind == "smtp", **starttls
            )

        server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=context if kind == "smtps" else None)
        ready.set_result((loop, stop, server.sockets[0].getsockname()[1]))
        await stop.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop, stop, port = ready.result(60)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)


@pytest.mark.finding("N55")
@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # TLS is there from the start
@pytest.mark.parametrize("kind", ["smtp", "smtps"])
def test_mail_is_sent_over_tls_with_a_login(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received = Received()
    mail = write_mail("<1@outreach.example>", "boris@wrona.example", "Boris", "Hello")
    with mail_server(kind, certificate(tmp_path), received) as port, httpx.Client() as http:
        server = MailServer(f"{kind}://anna:p%40ss@127.0.0.1:{port}", "http://127.0.0.1:1", http)
        with pytest.raises(ssl.SSLCertVerificationError):
            server.send(mail)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        server.send(mail)
    assert len(received.mails) == 1


def test_a_password_is_never_sent_without_tls(tmp_path: Path) -> None:
    with Outside(tmp_path / "remote.db") as outside, httpx.Client() as http:
        server = MailServer(f"smtp://anna:secret@{outside.smtp}", outside.api, http)
        with pytest.raises(OSError, match="STARTTLS"):
            server.send(write_mail("<1@outreach.example>", "boris@wrona.example", "Boris", "Hello"))
        assert not outside.has_sent("<1@outreach.example>")
