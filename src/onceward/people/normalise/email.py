"""E-mail addresses. No network access: the key of an address must not depend on a DNS answer."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from onceward.protocol.extras import import_extra

_ATOM: Final = r"[a-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PLAIN: Final = re.compile(rf"({_ATOM}(?:\.{_ATOM})*)@((?:{_LABEL}\.)+(?!\d+$){_LABEL})")
_BRACKETS: Final = re.compile(r"<([^<>]*)>\s*(?:\([^()]*\)\s*)?$")
_LONGEST: Final = 254  # RFC 5321, path less its brackets
_LONGEST_LOCAL: Final = 64
_MAX_INPUT: Final = 1000  # characters, with a display name

_NO_DOTS: Final = {"gmail.com", "googlemail.com", "proton.me", "protonmail.com", "pm.me"}
_PLUS_TAGS: Final = _NO_DOTS | {
    *("outlook.com", "hotmail.com", "live.com", "msn.com", "icloud.com", "me.com", "mac.com"),
    *("fastmail.com", "fastmail.fm", "zoho.com", "hey.com", "mailbox.org", "posteo.de", "gmx.de", "gmx.net", "web.de"),
}
_SAME: Final = {"googlemail.com": "gmail.com", "protonmail.com": "proton.me", "pm.me": "proton.me"}


@lru_cache(maxsize=16_384)  # an import normalises each twice: for the key, and for the merged field
def email(text: str) -> str:
    """`"Anna" <mailto:Anna@BÜCHER.example>` → `anna@xn--bcher-kva.example`. Raise ValueError for other text."""
    if len(text) > _MAX_INPUT:
        raise ValueError(f"the address is too long ({len(text)} characters)")
    address = text.strip()
    plain = address.lower()
    found = _PLAIN.fullmatch(plain)
    if found is None:
        plain = _bare(address)
        found = _PLAIN.fullmatch(plain)
    if found is None:
        return _unusual(plain)
    if len(plain) > _LONGEST or found.end(1) > _LONGEST_LOCAL:
        raise ValueError(f"the address is too long ({len(plain)} characters)")
    return plain


def email_of_mailbox(text: str) -> str:
    """Do what `email` does, and apply the rules of well-known providers: ignore dots, and tags after a plus.

    This is optional because providers may change their rules.
    """
    local, _, domain = email(text).rpartition("@")
    if domain in _PLUS_TAGS:
        local = local.partition("+")[0] or local
    if domain in _NO_DOTS:
        local = local.replace(".", "") or local
    return f"{local}@{_SAME.get(domain, domain)}"


def _bare(text: str) -> str:
    """Remove the display name, `mailto:` and the query of a link."""
    inside = _BRACKETS.search(text)
    bare = inside[1].strip() if inside else text
    if bare[:7].lower() == "mailto:":
        bare = unquote(bare[7:].partition("?")[0])
    return bare.strip().rstrip(".").lower()


def _unusual(address: str) -> str:
    """Normalise an address with quotes or non-ASCII letters."""
    if "@" not in address:
        raise ValueError(f"{_shown(address)} has no @" if address else "the address is empty")
    if address.isascii() and '"' not in address:
        raise ValueError(f"{_shown(address)} is not an e-mail address")
    problem = "addresses with non-ASCII letters need the module 'email_validator'"
    validator = import_extra("email_validator", problem, "install onceward[people]")
    options = {"check_deliverability": False, "allow_quoted_local": True, "test_environment": True}
    try:
        valid = validator.validate_email(address, **options)
    except validator.EmailNotValidError as error:
        raise ValueError(f"{_shown(address)} is not an e-mail address: {error}") from error
    local = valid.ascii_email.rpartition("@")[0] if valid.ascii_email else valid.local_part
    return f"{local}@{valid.ascii_domain}".lower()


def _shown(address: str) -> str:
    return repr(address if len(address) <= 80 else address[:80] + "…")  # noqa: PLR2004 (a line)
