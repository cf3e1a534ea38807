"""What a source is trusted with.

By default, every source may identify people by strong keys and set their fields. A web form must not: a visitor who
enters another person's customer number would take over that person's record. A row of a source that is not trusted:

- joins at most one person, and never connects two,
- gives a person no key,
- sets only fields that no trusted source has a value for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from onceward.errors import ConfigurationError


class Trust(Struct, frozen=True):
    """What a source is trusted with: `identifiers` are strong fields that identify a person if this source sends them.

    `fields` are those whose values may replace the values of trusted sources.
    """

    identifiers: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


UNTRUSTED: Final = Trust()
"""Trusted with nothing: rows are added to the people they match, but identify and change no one."""


def check_trust(trust: Mapping[str, Trust], strong: list[str]) -> None:
    """Raise if a source is trusted with an identifier that is not a strong field."""
    for source, one in trust.items():
        for name in one.identifiers:
            if name not in strong:
                raise ConfigurationError(
                    f"the source {source!r} is trusted with the identifier {name!r}, which is not a strong field",
                    hint=f"use some of: {', '.join(strong)}",
                )


def claimed_key(source: str, key: str) -> str:
    """Return the key under which an untrusted source's own rows find each other, and no other source's."""
    return f"?{source}:{key}"
