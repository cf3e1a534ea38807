"""xAPI statements: validity (`shape`, `parts`), equality (`equality`) and the agents they refer to (`agents`)."""

from __future__ import annotations

from .agents import User, hash_key, identifier, related_agents, users_of
from .equality import digest, instant, microseconds
from .shape import Invalid, as_returned, check, check_agent

__all__ = [
    "Invalid",
    "User",
    "as_returned",
    "check",
    "check_agent",
    "digest",
    "hash_key",
    "identifier",
    "instant",
    "microseconds",
    "related_agents",
    "users_of",
]
