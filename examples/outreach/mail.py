"""Read incoming e-mails, write outgoing ones, send them, and ask the mail server whether it accepted one."""

from __future__ import annotations

import codecs
import re
import smtplib
import socket
import ssl
from contextlib import suppress
from email.errors import MessageError
from email.header import decode_header
from email.message import EmailMessage, Message
from email.parser import BytesParser
from email.utils import formatdate, parseaddr
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import httpx
from msgspec import Struct

from onceward.people import normalise

SENDER: Final = "anna@outreach.example"
PERMANENT_ERROR: Final = 500
ERROR_CODES: Final = range(400, 600)
DEFAULT_PORTS: Final = {"smtp": 25, "smtps": 465}
TIMEOUT: Final = 30.0  # seconds, for one step of an SMTP session: less than the delay before verify
NOT_SENT: Final = (
    smtplib.SMTPResponseException,
    smtplib.SMTPRecipientsRefused,
    smtplib.SMTPNotSupportedError,
    ConnectionRefusedError,
    socket.gaierror,
    ssl.SSLCertVerificationError,
    ValueError,
)
"""Errors that mean: the server rejected the mail, or was not reached. After other errors it may have been sent."""

MAX_PARSED: Final = 10_000_000  # bytes
MAX_PARTS: Final = 10_000  # lines that may begin a part: the parser is slow for hundreds of thousands
MAX_SUBJECT: Final = 2_000  # characters
MAX_TEXT: Final = 1_000_000  # bytes of the text part: more is cut off
SLOW_CHARSETS: Final = frozenset({"punycode", "idna", "unicode_escape", "raw_unicode_escape", "utf_7"})
"""Decoders of Python that no mail program uses. Some take minutes for a megabyte."""

_ID = re.compile(r"<([^<>]+)>")
_BLANK = re.compile(r"[\s\x00-\x1f]+")


class Unreachable(Exception):
    """The server permanently rejects mails to this address."""


class InvalidReply(OSError):
    """The server's reply is invalid, for example incomplete because it crashed. It may have accepted the mail."""


class IncomingMail(Struct, frozen=True):
    """The parts of a received mail that the system needs. `answers` are the Message-IDs it refers to, latest first."""

    message_id: str | None
    sender: str | None
    answers: tuple[str, ...]
    subject: str
    text: str


def read_mail(raw: bytes) -> IncomingMail:
    """Parse a mail. Malformed or hostile content must not prevent it from being stored.

    Of a mail that is too large, too deeply nested or has too many parts, only the headers are read.
    """
    too_large = len(raw) > MAX_PARSED or raw.count(b"\n--") + raw.count(b"\r--") > MAX_PARTS
    try:
        mail = BytesParser().parsebytes(raw, headersonly=too_large)
        text = "" if too_large else _text(mail)
    except RecursionError:
        mail, text = BytesParser().parsebytes(raw, headersonly=True), ""
    return IncomingMail(
        message_id=next(iter(_ids(mail, "message-id")), None),
        sender=address(str(mail.get("From", ""))),
        answers=(*_ids(mail, "in-reply-to"), *reversed(_ids(mail, "references"))),
        subject=_decode_words(str(mail.get("Subject", ""))[:MAX_SUBJECT]),
        text=text,
    )


def _ids(mail: Message, header: str) -> list[str]:
    """Return the Message-IDs in a header that may be repeated."""
    values = [str(value) for name, value in mail.raw_items() if name.lower() == header]
    return [one for value in values for one in message_ids(value)]


def message_ids(value: str) -> list[str]:
    """Return the Message-IDs in a value that may be folded, empty, commented, or lack its brackets.

    They are read from the bytes, so that ids which differ in non-ASCII bytes stay different.
    """
    line = _BLANK.sub(" ", value.encode("utf-8", "surrogateescape").decode("latin-1")).strip()
    ids = _ID.findall(line) or ([line] if "@" in line and " " not in line else [])
    return [f"<{id.replace(' ', '')}>" for id in ids if id.strip()]


def address(value: str) -> str | None:
    """Return the address in the value of a From header, or None."""
    with suppress(ValueError, RecursionError):  # nested comments
        return normalise.email(parseaddr(value)[1])
    return None


def _decode_words(value: str) -> str:
    """Decode an RFC 2047 header: its parts have several encodings, some of them unknown."""
    try:
        parts = decode_header(re.sub(r"\r?\n\s*", " ", value))
    except (MessageError, ValueError):
        return value
    return "".join(part if isinstance(part, str) else _decode(part, charset) for part, charset in parts)


def _text(mail: Message) -> str:
    """Return the first text part, plain text if there is one."""
    texts = [part for part in mail.walk() if part.get_content_maintype() == "text"]
    for part in sorted(texts, key=lambda part: part.get_content_subtype() != "plain")[:1]:
        payload = part.get_payload(decode=True)
        if isinstance(payload, bytes):
            return _decode(payload[:MAX_TEXT], part.get_content_charset())
    return ""


def _decode(data: bytes, charset: str | None) -> str:
    try:
        codec = codecs.lookup(charset or "utf-8")
        if codec.name.replace("-", "_") in SLOW_CHARSETS:
            return data.decode("latin-1")
        text = data.decode(codec.name, "replace")
    except (LookupError, ValueError):  # an unknown or invalid charset
        return data.decode("latin-1")
    return text.encode("utf-8", "replace").decode()  # some charsets can encode unpaired surrogates


def write_mail(message_id: str, to: str, name: str | None, text: str, **headers: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = SENDER, to, " ".join(f"For {name or to}".split())
    mail["Message-ID"], mail["Date"] = message_id, formatdate()
    for header, value in headers.items():
        mail[f"X-{header.title()}"] = value
    mail.set_content(text)
    return mail


class MailServer:
    """A mail server: it accepts mails over SMTP, and reports over HTTP which mails it has accepted.

    `smtp` is its URL: `smtps://user:password@host:465` (TLS), `smtp://user:password@host:587` (STARTTLS), or
    `smtp://host:25` without TLS. A password is never sent without TLS.
    """

    def __init__(self, smtp: str, records: str, http: httpx.Client) -> None:
        self._smtp = urlsplit(smtp if "://" in smtp else f"smtp://{smtp}")
        if self._smtp.scheme not in DEFAULT_PORTS or not self._smtp.hostname:
            raise ValueError(
                f"the mail server is given as smtp://host:port or smtps://host:port, not {self._smtp.scheme}"
            )
        self._records = records
        self._http = http

    def _connect(self) -> smtplib.SMTP:
        """Connect, encrypt and log in."""
        url = self._smtp
        host, port = url.hostname or "", url.port or DEFAULT_PORTS[url.scheme]
        if url.scheme == "smtps":
            connection: smtplib.SMTP = smtplib.SMTP_SSL(
                host, port, timeout=TIMEOUT, context=ssl.create_default_context()
            )
        else:
            connection = smtplib.SMTP(host, port, timeout=TIMEOUT)
        try:
            if url.username:
                if url.scheme == "smtp":
                    connection.starttls(context=ssl.create_default_context())
                connection.login(unquote(url.username), unquote(url.password or ""))
        except BaseException:
            connection.close()
            raise
        return connection

    def send(self, mail: EmailMessage) -> None:
        connection = self._connect()
        try:
            try:
                connection.send_message(mail)
            except smtplib.SMTPRecipientsRefused as refused:
                if all(code >= PERMANENT_ERROR for code, _ in refused.recipients.values()):
                    raise Unreachable(mail["To"]) from refused
                raise
            except smtplib.SMTPResponseException as error:
                if type(error) is smtplib.SMTPResponseException or error.smtp_code not in ERROR_CODES:
                    raise InvalidReply(
                        f"invalid reply of the mail server: {error.smtp_code} {error.smtp_error!r}"
                    ) from error
                raise
            with suppress(smtplib.SMTPException, OSError):  # the mail is sent: an error on QUIT does not matter
                connection.quit()
        finally:
            connection.close()

    def has_sent(self, message_id: str) -> bool:
        """Whether the server accepted this mail. Raise if it does not answer."""
        answer = self._http.get(f"{self._records}/sent/{quote(message_id, safe='')}").raise_for_status()
        return bool(answer.json()["sent"])
