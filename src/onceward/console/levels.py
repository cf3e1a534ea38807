"""Which access level an action needs."""

from __future__ import annotations

from onceward.administration import Action

from .access import Level


def level_of(action: Action) -> Level:
    """Forgetting deletes what is known, and force overrides a live owner: both need the highest level."""
    return Level.ADMIN if action.verb == "forget" or action.force else Level.ACT
