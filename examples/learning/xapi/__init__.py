"""xAPI statements: what makes one valid, what makes two of them equal, and whom they are about."""

from __future__ import annotations

from .agents import User, identifier, users_of
from .equality import digest, instant
from .shape import Invalid, check

__all__ = ["Invalid", "User", "check", "digest", "identifier", "instant", "users_of"]
