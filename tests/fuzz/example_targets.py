"""Parsers of outside bytes in the example systems: e-mails and learning statements."""

from __future__ import annotations

import json

import msgspec

from examples.learning.records import parse_statement
from examples.learning.xapi.shape import Invalid
from examples.outreach.mail import address, message_ids, read_mail
from tests.fuzz.target import Target

MAIL = (
    b"Message-ID: <1@example.com>\r\nIn-Reply-To: <0@us.example>\r\nFrom: =?utf-8?q?J=C3=BCrgen?= <j@example.com>\r\n"
    b"Subject: Re: hello\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\r\nGr\xfc\xdfe"
)
PARTS = (
    b"From: j@example.com\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n"
    b"--x\r\nContent-Type: text/html; charset=punycode\r\n\r\n<p>a</p>\r\n"
    b"--x\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n--x--\r\n"
)
STATEMENT = {
    "id": "6690e6c9-3ef0-4ed3-8b37-7f3964730bee",
    "actor": {"mbox": "mailto:ann@example.com", "name": "Ann"},
    "verb": {"id": "http://adlnet.gov/expapi/verbs/completed"},
    "object": {"id": "http://example.com/course/1", "objectType": "Activity"},
    "result": {"score": {"scaled": 0.9}, "duration": "PT4M"},
    "timestamp": "2025-03-01T08:00:00Z",
}


def mail(data: bytes) -> None:
    read_mail(data)
    text = data.decode("utf-8", "replace")
    message_ids(text)
    address(text)


def statement(data: bytes) -> None:
    """The server reads the JSON before it checks the statement."""
    try:
        content = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return
    for lenient in (False, True):
        try:
            parse_statement(content, id="own", lenient=lenient)
        except Invalid:
            continue


EXAMPLE_TARGETS: dict[str, Target] = {
    "mail": Target(mail, (), (MAIL, PARTS)),
    "statement": Target(statement, (), (json.dumps(STATEMENT).encode(),)),
}
