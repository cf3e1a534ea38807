"""Whom a statement is about: one identifier of four, each as a strong key of identity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from onceward.identity import normalise

MANY: Final = 65_536
"""Addresses that are remembered in their normal form."""


class User(Struct, frozen=True):
    """Somebody as a statement names them. `field` and `value` are a strong key; `name` is only shown."""

    field: str
    value: str
    name: str | None = None

    @property
    def key(self) -> str:
        """As identity has it: `email:anna@example.com`."""
        return f"{self.field}:{self.value}"


def identifier(agent: Mapping[str, Any]) -> User | None:
    """None: an anonymous group. A mailbox that identity cannot read is an IRI that names somebody, as an openid is."""
    name = agent.get("name")
    if "mbox" in agent:
        email = _email(agent["mbox"])
        return User("email", email, name) if email else User("openid", agent["mbox"], name)
    if "mbox_sha1sum" in agent:
        return User("mbox_sha1sum", agent["mbox_sha1sum"].lower(), name)
    if "openid" in agent:
        return User("openid", agent["openid"], name)
    if "account" in agent:
        return User("account", f"{agent['account']['homePage']}#{agent['account']['name']}", name)
    return None


def users_of(actor: Mapping[str, Any]) -> Iterator[User]:
    """The actor, and the members of a group."""
    for one in (actor, *actor.get("member", ())):
        user = identifier(one) if one.get("objectType") != "Group" else None
        if user is not None:
            yield user


def sha1_of(email: str) -> str:
    """Of the address as a mailto IRI, in its normal form."""
    return hashlib.sha1(f"mailto:{email}".encode(), usedforsecurity=False).hexdigest()


@lru_cache(MANY)
def _email(mbox: str) -> str:
    try:
        return normalise.email(mbox)
    except ValueError:
        return ""
