"""The agents of a statement: each has one of four identifiers, which is a strong key of a person."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from onceward.people import normalise

CACHED_MAILBOXES: Final = 65_536
"""Mailboxes whose normal form is cached."""

MAX_KEY_LENGTH: Final = 180
"""Characters of a key."""


class User(Struct, frozen=True):
    """A user as a statement names them: `field` and `value` are a strong key, `name` is only for display.

    `also` is the hash of the mailbox as written, if that is not its normal form: other senders may use that hash.
    """

    field: str
    value: str
    name: str | None = None
    also: str | None = None

    @property
    def key(self) -> str:
        """The key of the person: `email:anna@example.com`."""
        return f"{self.field}:{self.value}"

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the user's source record."""
        fields = {"mbox_sha1sum": self.also, "name": self.name, self.field: self.value}
        return {name: value for name, value in fields.items() if value}


def identifier(agent: Mapping[str, Any]) -> User | None:
    """Return the user, or None for an anonymous group. A mailbox that is not a valid email is used like an openid."""
    name = agent.get("name")
    if "mbox" in agent:
        email, also = _mailbox(agent["mbox"])
        return User("email", email, name, also) if email else User("openid", _normal_id(agent["mbox"]), name)
    if "mbox_sha1sum" in agent:
        return User("mbox_sha1sum", sha1(agent["mbox_sha1sum"]), name)
    if "openid" in agent:
        return User("openid", _normal_id(agent["openid"]), name)
    if "account" in agent:
        return User("account", _normal_id(_account(agent["account"])), name)
    return None


def users_of(actor: Mapping[str, Any]) -> Iterator[User]:
    """Yield the actor, and the members of a group."""
    for one in (actor, *actor.get("member", ())):
        user = identifier(one) if one.get("objectType") != "Group" else None
        if user is not None:
            yield user


def related_agents(actor: Mapping[str, Any], target: Mapping[str, Any]) -> str | None:
    """Return the hashes of the other agents of a statement: its object, and the members of groups."""
    others = [*actor.get("member", ())]
    if target.get("objectType") in ("Agent", "Group"):
        others += [target, *target.get("member", ())]
    found = {user.key for user in map(identifier, others) if user is not None}
    return " ".join(sorted(map(hash_key, found))) or None


def hash_key(key: str) -> str:
    """Return a hash of fixed length without blanks, which can be searched for in a list."""
    return hashlib.sha256(key.encode()).hexdigest()


def sha1(text: str) -> str:
    """Return a hash in its normal form."""
    return text.strip().lower()


def mailbox_sha1(email: str) -> str:
    """Return the SHA-1 of an address as a mailto IRI."""
    return hashlib.sha1(f"mailto:{email}".encode(), usedforsecurity=False).hexdigest()


def written_sha1(address: str) -> str:
    """Return the SHA-1 of an address as it was written, except for its domain. "" if it is not an address."""
    local, _, domain = address.strip().removeprefix("mailto:").rpartition("@")
    return mailbox_sha1(f"{local}@{domain.lower()}") if local and domain else ""


@lru_cache(CACHED_MAILBOXES)
def _mailbox(mbox: str) -> tuple[str, str | None]:
    """Return the normal form, or an empty text if there is none; and the hash of the original if it differs."""
    try:
        email = normalise.email(mbox)
    except ValueError:
        return "", None
    local, _, domain = mbox.removeprefix("mailto:").rpartition("@")
    written = f"{local}@{domain.lower()}"
    return email, mailbox_sha1(written) if written != email else None


def _account(account: dict[str, str]) -> str:
    """Return `https://home.page#name`, escaping a # in the page so that it stays unambiguous."""
    page = account["homePage"].replace("%", "%25").replace("#", "%23")
    return f"{page}#{account['name']}"


def _normal_id(text: str) -> str:
    """Return the normal form of an external id. A very long one is hashed."""
    plain = normalise.external_id(text)
    return plain if len(plain) <= MAX_KEY_LENGTH else f"sha256:{hashlib.sha256(plain.encode()).hexdigest()}"
