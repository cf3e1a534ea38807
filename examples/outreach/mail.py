"""E-mails: reading what arrives, writing what is sent, and the server that takes it and can be asked about it."""

from __future__ import annotations

import re
import smtplib
import socket
from contextlib import suppress
from email.errors import MessageError
from email.header import decode_header
from email.message import EmailMessage, Message
from email.parser import BytesParser
from email.utils import formatdate, parseaddr
from typing import Final
from urllib.parse import quote

import httpx
from msgspec import Struct

from onceward.people import normalise

SENDER: Final = "anna@outreach.example"
PERMANENTLY: Final = 500
REFUSALS: Final = range(400, 600)
PATIENCE: Final = 30.0  # seconds, of one step of a conversation: less than verify waits before it asks
REFUSED: Final = (
    smtplib.SMTPResponseException,
    smtplib.SMTPRecipientsRefused,
    smtplib.SMTPNotSupportedError,
    ConnectionRefusedError,
    socket.gaierror,
    ValueError,
)
"""The server has said no, or was not asked: the mail was certainly not sent. Other errors may come after it was."""

_ID = re.compile(r"<([^<>]+)>")
_BLANK = re.compile(r"[\s\x00-\x1f]+")


class Unreachable(Exception):
    """The server will never take a mail to this address."""


class Garbled(OSError):
    """What the server said is no answer: half a line, say, before it died. It may have taken the mail or not."""


class Incoming(Struct, frozen=True):
    """What is needed of a mail that arrived. `answers` are the Message-IDs that it refers to, the nearest first."""

    message_id: str | None
    sender: str | None
    answers: tuple[str, ...]
    subject: str
    text: str


def read_mail(raw: bytes) -> Incoming:
    """Of any mail, however it is written: nothing in it may keep it from being stored."""
    mail = BytesParser().parsebytes(raw)
    return Incoming(
        message_id=next(iter(_ids(mail, "message-id")), None),
        sender=_address(mail),
        answers=(*_ids(mail, "in-reply-to"), *reversed(_ids(mail, "references"))),
        subject=_decoded(str(mail.get("Subject", ""))),
        text=_text(mail),
    )


def _ids(mail: Message, header: str) -> list[str]:
    """The Message-IDs in a header that may be folded, empty, repeated, commented, or lack its brackets.

    Taken from the bytes: what is not ASCII stays different where it is different.
    """
    values = [str(value) for name, value in mail.raw_items() if name.lower() == header]
    found: list[str] = []
    for value in values:
        line = _BLANK.sub(" ", value.encode("utf-8", "surrogateescape").decode("latin-1")).strip()
        ids = _ID.findall(line) or ([line] if "@" in line and " " not in line else [])
        found += [f"<{id.replace(' ', '')}>" for id in ids if id.strip()]
    return found


def _address(mail: Message) -> str | None:
    with suppress(ValueError):
        return normalise.email(parseaddr(str(mail.get("From", "")))[1])
    return None


def _decoded(value: str) -> str:
    """RFC 2047: parts in several encodings, some of which nobody knows."""
    try:
        parts = decode_header(re.sub(r"\r?\n\s*", " ", value))
    except (MessageError, ValueError):
        return value
    return "".join(part if isinstance(part, str) else _in(part, charset) for part, charset in parts)


def _text(mail: Message) -> str:
    """The first text that it has, plain before any other."""
    texts = [part for part in mail.walk() if part.get_content_maintype() == "text"]
    for part in sorted(texts, key=lambda part: part.get_content_subtype() != "plain")[:1]:
        payload = part.get_payload(decode=True)
        if isinstance(payload, bytes):
            return _in(payload, part.get_content_charset())
    return ""


def _in(piece: bytes, charset: str | None) -> str:
    try:
        text = piece.decode(charset or "utf-8", "replace")
    except (LookupError, ValueError):  # nobody knows it, or it cannot be one
        return piece.decode("latin-1")
    return text.encode("utf-8", "replace").decode()  # some charsets can write half a character, which is no text


def write_mail(message_id: str, to: str, name: str | None, text: str, **headers: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = SENDER, to, " ".join(f"For {name or to}".split())
    mail["Message-ID"], mail["Date"] = message_id, formatdate()
    for header, value in headers.items():
        mail[f"X-{header.title()}"] = value
    mail.set_content(text)
    return mail


class MailServer:
    """SMTP takes mails; the server's own records, over HTTP, tell what it has taken."""

    def __init__(self, smtp: str, records: httpx.Client) -> None:
        host, _, port = smtp.rpartition(":")
        self._host, self._port = host, int(port)
        self._records = records

    def send(self, mail: EmailMessage) -> None:
        connection = smtplib.SMTP(self._host, self._port, timeout=PATIENCE)
        try:
            try:
                connection.send_message(mail)
            except smtplib.SMTPRecipientsRefused as refused:
                if all(code >= PERMANENTLY for code, _ in refused.recipients.values()):
                    raise Unreachable(mail["To"]) from refused
                raise
            except smtplib.SMTPResponseException as said:
                if type(said) is smtplib.SMTPResponseException or said.smtp_code not in REFUSALS:
                    raise Garbled(f"the mail server said {said.smtp_code} {said.smtp_error!r}") from said
                raise
            with suppress(smtplib.SMTPException, OSError):  # it is sent: a rude goodbye is no refusal
                connection.quit()
        finally:
            connection.close()

    def has_sent(self, message_id: str) -> bool:
        """Raises if the server cannot tell."""
        answer = self._records.get(f"/sent/{quote(message_id, safe='')}").raise_for_status()
        return bool(answer.json()["sent"])
