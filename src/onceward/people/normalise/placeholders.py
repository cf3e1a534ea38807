"""Placeholders: values that stand for a missing one. They identify no one.

They are not compared. Otherwise a shared `none@none.com` or birth date 1900-01-01 would merge unrelated people.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_WORDS: Final = frozenset(
    {"n/a", "na", "none", "null", "nil", "nan", "undefined", "unknown", "unbekannt", "inconnu", "tbd", "missing"}
)
_INVENTED: Final = _WORDS | {"keine", "ohne", "empty", "leer", "noemail", "nomail", "x", "xx", "xxx", "asdf", "test"}
"""Words that are entered as both mailbox and domain of an address."""

_NOBODY: Final = frozenset(
    {"noreply", "donotreply", "none", "null", "undefined", "unknown", "unbekannt", "noemail", "nomail", "keine"}
)
"""Mailboxes that no person reads, without hyphens, dots and underscores."""

_ROLES: Final = _INVENTED | frozenset(
    {
        "accounting", "accounts", "admin", "administration", "anfrage", "apply", "bestellung", "bewerbung", "billing",
        "booking", "buchhaltung", "bureau", "careers", "compta", "comptabilite", "contact", "contacto", "empfang",
        "enquiries", "enquiry", "events", "facturacion", "fam", "familia", "familie", "famille",
        "family", "feedback", "finance", "frontdesk", "hallo", "hello", "help",
        "helpdesk", "hilfe", "hr", "info", "information", "inquiries", "inquiry", "invoice", "invoices", "it", "jobs",
        "kontakt", "kundenservice", "mail", "mailbox", "marketing", "newsletter", "office", "order", "orders",
        "personal", "post", "poststelle", "postmaster", "presse", "press", "privacy", "reception", "rechnung",
        "rechnungen", "recruiting", "root", "sales", "secretariat", "sekretariat", "service", "shop", "support",
        "team", "ventas", "verkauf", "vertrieb", "verwaltung", "webmaster", "welcome", "zentrale",
    }
)  # fmt: skip
"""Mailboxes of a function or a family, which several people read."""

_NAMES: Final = frozenset({"unknown", "unbekannt", "inconnu", "desconocido", "sconosciuto", "n a", "noname"})
_DATES: Final = frozenset(
    {"0001-01-01", "1111-11-11", "1899-12-30", "1899-12-31", "1900-01-01", "1970-01-01", "9999-12-31"}
)
_SEQUENCE: Final = "01234567890123456789"
_SHORTEST: Final = 7
"""Digits that a number needs before repeated or consecutive digits look invented."""


def is_placeholder_address(address: str) -> bool:
    """Return whether a normalised address was entered because the form required one."""
    mailbox, _, domain = address.rpartition("@")
    return mailbox in _INVENTED and domain.partition(".")[0] in _INVENTED


def is_of_nobody(address: str) -> bool:
    """Return whether no person reads a normalised address: `noreply@…`, `unknown@…`."""
    return _mailbox(address) in _NOBODY


def is_of_a_role(address: str) -> bool:
    """Return whether several people read a normalised address: `info@…`, `office@…`, `family@…`."""
    return _mailbox(address) in _ROLES


def _mailbox(address: str) -> str:
    mailbox = address.rpartition("@")[0].partition("+")[0]
    return mailbox.replace("-", "").replace(".", "").replace("_", "")


def is_placeholder_id(text: str) -> bool:
    """Return whether an id of another system is only a word for a missing one, or zeros."""
    plain = text.casefold()
    return plain in _WORDS or plain in ("-", "--", "?") or (len(plain) > 1 and not plain.strip("0"))


def is_placeholder_number(digits: str) -> bool:
    """Return whether a normalised number is invented: `000000000`, `9999999`, `123456789`."""
    if digits in _WORDS:
        return True
    return len(digits) >= _SHORTEST and digits.isdecimal() and (len(set(digits)) == 1 or digits in _SEQUENCE)


def is_placeholder_date(birth_date: str) -> bool:
    """Return whether a normalised birth date is one that databases and forms fill in."""
    return birth_date in _DATES


def stands_for_missing(kind: str, key: str) -> bool:
    """Return whether the key of a field of this kind stands for a missing value."""
    check = _CHECKS.get(kind)
    return check is not None and check(key)


def is_placeholder_name(folded: str) -> bool:
    """Return whether a folded name says that the name is unknown."""
    return folded in _NAMES


_CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "email": is_placeholder_address,
    "mailbox": is_placeholder_address,
    "external id": is_placeholder_id,
    "number": is_placeholder_number,
    "birth date": is_placeholder_date,
}
