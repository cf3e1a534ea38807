"""Replies as they really look: folded, nameless, repeated, commented, in several encodings, or broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.outreach.mail import MAX_PARSED, MAX_PARTS, MAX_TEXT, read_mail, write_mail

ID = "<20260302.A1@mail.example>"


@pytest.mark.mission("C4")
@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"Message-ID: {ID}", ID),
        (f"Message-Id:\r\n {ID}", ID),
        (f"MESSAGE-ID:\t\r\n\t{ID}\r\n", ID),
        (f"Message-ID: {ID} (added by postmaster@mail.example)", ID),
        ("Message-ID: 20260302.A1@mail.example", ID),
        (f"Message-ID:\r\nMessage-ID: {ID}", ID),
        (f"Message-ID: {ID}\r\nMessage-ID: <second@mail.example>", ID),
        ("Message-ID: <20260302.A1\r\n @mail.example>", ID),
        ("Message-ID: <[10.0.0.1]@x>", "<[10.0.0.1]@x>"),
        ("Message-ID:", None),
        ("Message-ID:   \r\n  ", None),
        ("Message-ID: <a\x00b@x>", "<ab@x>"),
        ("Message-ID: <>", None),
        ("Message-ID: < >", None),
        ("Message-ID: (none)", None),
        ("X-Message-ID: <other@mail.example>", None),
    ],
)
def test_the_message_id_is_found_however_it_is_written(header: str, found: str | None) -> None:
    raw = f"From: a@b.example\r\n{header.strip()}\r\nSubject: x\r\n\r\nyes\r\n".encode()
    assert read_mail(raw).message_id == found


@pytest.mark.mission("C4")
@pytest.mark.parametrize(
    ("charset", "encoding", "body", "text"),
    [
        ("utf-8", "quoted-printable", b"zw=C3=B6lf", "zwölf"),
        ("iso-8859-1", "quoted-printable", b"zw=F6lf", "zwölf"),
        ("iso-2022-jp", "7bit", "はい".encode("iso-2022-jp"), "はい"),
        ("shift_jis", "8bit", "はい".encode("shift_jis"), "はい"),
        ("utf-8", "base64", b"endcw7ZsZg==", None),
        ("windows-1252", "8bit", b"\x93yes\x94", "“yes”"),
        ("x-unknown", "8bit", b"zw\xf6lf", "zwölf"),
        ("undefined", "8bit", b"yes", "yes"),
        ("hex", "8bit", b"yes", "yes"),
        ("utf-8", "8bit", b"\xff\xfe yes", "\ufffd\ufffd yes"),
        ("utf-8", "base64", b"this is not base64!!", None),
    ],
)
def test_the_text_is_read_in_any_encoding(charset: str, encoding: str, body: bytes, text: str | None) -> None:
    raw = (
        f"From: a@b.example\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset={charset}\r\n"
        f"Content-Transfer-Encoding: {encoding}\r\n\r\n"
    ).encode() + body
    read = read_mail(raw).text
    assert read.strip() == text if text is not None else isinstance(read, str)


@pytest.mark.mission("C4")
def test_two_ids_that_differ_only_in_undecodable_bytes_are_different() -> None:
    one, other = (read_mail(b"Message-ID: <" + byte + b"@x>\r\n\r\n").message_id for byte in (b"\xe4", b"\xf6"))
    assert one != other
    assert None not in (one, other)


@pytest.mark.mission("C4")
def test_subjects_senders_and_references_are_read() -> None:
    mail = read_mail(
        b"From: =?utf-8?q?Mira_=C3=96sterholt?= <Mira@Osterholt.example>\r\n"
        b"Subject: =?utf-8?b?R2VybmUs?= =?iso-8859-1?q?_am_M=E4rz-Termin?=\r\n =?x-unknown?q?!?=\r\n"
        b"In-Reply-To: <b@x>\r\nReferences: <a@x>\r\n <b@x>\r\n\r\n"
    )
    assert mail.sender == "mira@osterholt.example"
    assert mail.subject == "Gerne, am März-Termin!"
    assert mail.answers == ("<b@x>", "<b@x>", "<a@x>")
    assert (read_mail(b"From: unknown\r\n\r\n").sender, read_mail(b"").message_id) == (None, None)


def test_of_several_parts_the_plain_text_is_read() -> None:
    raw = (
        b'From: a@b.example\r\nContent-Type: multipart/alternative; boundary="b"\r\n\r\n'
        b"--b\r\nContent-Type: text/html\r\n\r\n<b>yes</b>\r\n--b\r\nContent-Type: text/plain\r\n\r\nyes\r\n--b--\r\n"
    )
    assert read_mail(raw).text.strip() == "yes"


def test_a_mail_of_ours_can_be_read_back() -> None:
    mail = write_mail(ID, "mira@osterholt.example", "Mira Österholt", "Grüße", prospect="p1", token="7")
    read = read_mail(mail.as_bytes())
    assert (read.message_id, read.text.strip(), read.subject) == (ID, "Grüße", "For Mira Österholt")


@given(st.binary(max_size=400))
def test_every_mail_that_arrives_can_be_stored(raw: bytes) -> None:
    head = b"Message-ID: " + ID.encode() + b"\r\n"
    assert read_mail(head + raw).message_id == ID
    read_mail(raw)


@pytest.mark.finding("N44")
@pytest.mark.parametrize(
    ("charset", "body"),
    [
        ("punycode", "bcher-kva"),
        ("idna", "xn--bcher-kva"),
        ("unicode_escape", "\\x41"),
        ("raw-unicode-escape", "\\u0041"),
        ("utf-7", "+AGE-"),
    ],
)
def test_slow_decoders_of_python_are_never_used(charset: str, body: str) -> None:
    raw = f"From: a@b.example\r\nContent-Type: text/plain; charset={charset}\r\n\r\n{body}"
    assert read_mail(raw.encode()).text == body


@pytest.mark.finding("N44")
def test_of_a_mail_with_a_thousand_nested_parts_the_headers_are_read() -> None:
    head = f"From: a@b.example\r\nMessage-ID: {ID}\r\nSubject: deep\r\n"
    parts = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n" for n in range(2_000))
    mail = read_mail(f"{head}{parts}\r\nyes\r\n".encode())
    assert (mail.message_id, mail.sender, mail.subject) == (ID, "a@b.example", "deep")


@pytest.mark.finding("N44")
@pytest.mark.parametrize("nested", ["(", "a:"])
def test_a_sender_with_nested_comments_or_groups_does_not_prevent_a_mail_from_being_stored(nested: str) -> None:
    mail = read_mail(f"From: {nested * 20_000} a@b.example\r\nMessage-ID: {ID}\r\n\r\nyes".encode())
    assert (mail.message_id, mail.sender, mail.text) == (ID, None, "yes")


@pytest.mark.finding("N44")
@pytest.mark.parametrize("line_end", ["\r\n", "\n", "\r"])
def test_very_many_parts_are_not_parsed(line_end: str) -> None:
    head = ("From: a@b.example", f"Message-ID: {ID}", "Content-Type: multipart/mixed; boundary=b", "", "")
    raw = (line_end.join(head) + f"--b{line_end}{line_end}yes{line_end}" * (MAX_PARTS + 1)).encode()
    assert (read_mail(raw).message_id, read_mail(raw).text) == (ID, "")


@pytest.mark.finding("N44")
def test_of_a_huge_mail_the_headers_are_read_and_a_long_text_is_cut_off() -> None:
    head = f"From: a@b.example\r\nMessage-ID: {ID}\r\n\r\n".encode()
    assert read_mail(head + b"x" * (MAX_PARSED + 1)).text == ""
    assert read_mail(head + b"x" * (MAX_PARSED + 1)).message_id == ID
    assert len(read_mail(head + b"x" * (2 * MAX_TEXT)).text) == MAX_TEXT
