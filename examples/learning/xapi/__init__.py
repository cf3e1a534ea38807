"""xAPI statements: what makes one valid, what makes two of them equal, and whom they are about."""

from __future__ import annotations

from .agents import User, concerned, hashed, identifier, users_of
from .equality import digest, instant, microseconds
from .shape import Invalid, as_returned, check, check_agent

__all__ = [
    "Invalid",
    "User",
    "as_returned",
    "check",
    "check_agent",
    "concerned",
    "digest",
    "hashed",
    "identifier",
    "instant",
    "microseconds",
    "users_of",
]
