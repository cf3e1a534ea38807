"""Who may do what: a level, and optional limits to scopes and tenants. The server checks both on every request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from starlette.requests import Request

from onceward.administration.actions import Action
from onceward.administration.visible import Visible
from onceward.errors import ConfigurationError
from onceward.protocol.suggest import did_you_mean


class Level(IntEnum):
    """What a visitor may do. Each level includes the ones before it.

    - `NONE`: nothing.
    - `READ`: see records; results and inputs on request.
    - `ACT`: also resolve, retry and release records, and run or pause schedules.
    - `ADMIN`: also forget records, and force actions on records whose owner is alive.
    """

    NONE = 0
    READ = 1
    ACT = 2
    ADMIN = 3


def level_of(action: Action) -> Level:
    """Return the level that an action needs: `ADMIN` to forget a record or to override a live owner."""
    return Level.ADMIN if action.verb == "forget" or action.force else Level.ACT


LevelName = Literal["none", "read", "act", "admin"]


@dataclass(frozen=True)
class Access:
    """What one visitor may do.

    - `level`: "none", "read", "act" or "admin".
    - `scopes`: only records of these scopes (`app/operation`, with or without `@tenant`). None means all.
    - `tenants`: only records of these tenants. None means all.
    - `user`: the name that audit entries show.
    """

    level: Level | LevelName = Level.NONE
    scopes: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    user: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", parse_level(self.level))
        for name in ("scopes", "tenants"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise ConfigurationError(f"{name}= takes a list of texts, not a text", hint=f"{name}=[{value!r}]")
            if value is not None:
                object.__setattr__(self, name, tuple(value))

    def allows(self, needed: Level) -> bool:
        """Return whether the level of this visitor is at least the `needed` one."""
        return parse_level(self.level) >= needed

    def at_most(self, highest: Level) -> Access:
        """Return this access, reduced to `highest`."""
        return replace(self, level=min(parse_level(self.level), highest))

    @property
    def sees_nothing(self) -> bool:
        """Whether the limits leave nothing: an empty list of scopes or tenants is not the same as no limit."""
        return any(one is not None and not one for one in (self.scopes, self.tenants))

    @property
    def is_limited(self) -> bool:
        """Whether the visitor sees only some scopes or tenants."""
        return self.scopes is not None or self.tenants is not None

    @property
    def visible(self) -> Visible:
        """The limits, as the administration takes them."""
        return Visible(tuple(self.scopes or ()), tuple(self.tenants or ()))


def parse_level(level: object) -> Level:
    """Return the level that this name means."""
    if isinstance(level, Level):
        return level
    names = [one.name.lower() for one in Level]
    if not isinstance(level, str) or level not in names:
        raise ConfigurationError(
            f"{level!r} is not an access level", hint=did_you_mean(str(level), names, "levels are")
        )
    return Level[level.upper()]


Granted = Access | LevelName | None
"""What `authorize` returns: an `Access`, the name of a level, or None for no access."""

Authorize = Callable[[Request], Granted | Awaitable[Granted]]
"""Decides what the sender of a request may do. May be a coroutine function."""


async def granted_access(authorize: Authorize, request: Request) -> Access:
    """Call `authorize`, and return what it grants."""
    granted = authorize(request)
    if inspect.isawaitable(granted):
        granted = await granted
    if granted is None:
        return Access()
    access = granted if isinstance(granted, Access) else Access(granted)
    return Access(user=access.user) if access.sees_nothing else access
