"""Whom a statement is about: one identifier of four, each as a strong key of identity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from onceward.people import normalise

MANY: Final = 65_536
"""Mailboxes that are remembered in their normal form."""

LONGEST: Final = 180
"""Characters of a key."""


class User(Struct, frozen=True):
    """Somebody as a statement names them: `field` and `value` are a strong key, `name` is only shown.

    `also` is the hash of a mailbox as it was written, if that is not its normal form: others may know that one.
    """

    field: str
    value: str
    name: str | None = None
    also: str | None = None

    @property
    def key(self) -> str:
        """As identity has it: `email:anna@example.com`."""
        return f"{self.field}:{self.value}"

    @property
    def fields(self) -> dict[str, str]:
        """What a source record of theirs says."""
        told = {"mbox_sha1sum": self.also, "name": self.name, self.field: self.value}
        return {name: value for name, value in told.items() if value}


def identifier(agent: Mapping[str, Any]) -> User | None:
    """None: an anonymous group. A mailbox that identity cannot read is an IRI that names somebody, as an openid is."""
    name = agent.get("name")
    if "mbox" in agent:
        email, also = _mailbox(agent["mbox"])
        return User("email", email, name, also) if email else User("openid", _short(agent["mbox"]), name)
    if "mbox_sha1sum" in agent:
        return User("mbox_sha1sum", sha1(agent["mbox_sha1sum"]), name)
    if "openid" in agent:
        return User("openid", _short(agent["openid"]), name)
    if "account" in agent:
        return User("account", _short(_account(agent["account"])), name)
    return None


def users_of(actor: Mapping[str, Any]) -> Iterator[User]:
    """The actor, and the members of a group."""
    for one in (actor, *actor.get("member", ())):
        user = identifier(one) if one.get("objectType") != "Group" else None
        if user is not None:
            yield user


def concerned(actor: Mapping[str, Any], target: Mapping[str, Any]) -> str | None:
    """Whom a statement is about besides its actor, as hashes: its object, and the members of groups in either place."""
    others = [*actor.get("member", ())]
    if target.get("objectType") in ("Agent", "Group"):
        others += [target, *target.get("member", ())]
    found = {user.key for user in map(identifier, others) if user is not None}
    return " ".join(sorted(map(hashed, found))) or None


def hashed(key: str) -> str:
    """Of one length and without blanks, so that it can be looked for among others."""
    return hashlib.sha256(key.encode()).hexdigest()


def sha1(text: str) -> str:
    """A hash as it is compared."""
    return text.strip().lower()


def sha1_of(email: str) -> str:
    """Of an address as a mailto IRI."""
    return hashlib.sha1(f"mailto:{email}".encode(), usedforsecurity=False).hexdigest()


@lru_cache(MANY)
def _mailbox(mbox: str) -> tuple[str, str | None]:
    """Its normal form, empty if it has none; and the hash of what was written, if that differs."""
    try:
        email = normalise.email(mbox)
    except ValueError:
        return "", None
    local, _, domain = mbox.removeprefix("mailto:").rpartition("@")
    written = f"{local}@{domain.lower()}"
    return email, sha1_of(written) if written != email else None


def _account(account: dict[str, str]) -> str:
    """`https://home.page#name`; a page that has a # itself is not taken for another page and the rest for a name."""
    page = account["homePage"].replace("%", "%25").replace("#", "%23")
    return f"{page}#{account['name']}"


def _short(text: str) -> str:
    """In the form in which identity has it; what is very long is hashed."""
    plain = normalise.external_id(text)
    return plain if len(plain) <= LONGEST else f"sha256:{hashlib.sha256(plain.encode()).hexdigest()}"
