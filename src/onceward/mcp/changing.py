"""The tools that change records. Each change is previewed first, and then applied to exactly what was shown."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from onceward.administration.actions import ACTIONS, DESCRIPTIONS
from onceward.administration.admin import Admin
from onceward.administration.bulk import decode_preview
from onceward.administration.filter_text import filter_from_text
from onceward.errors import ConfigurationError

from .data import reply

MAX_SHOWN = 20
MAX_CHANGED = 100
"""Records that one action of a model changes at most."""


class ChangingTools:
    """One method per tool; its docstring is what a model reads about it."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def preview_action(
        self,
        *,
        action: str,
        ids: list[str] | None = None,
        group: str = "",
        scope: str = "",
        state: str = "",
        prefix: str = "",
        result: Any = None,
        limit: int = MAX_CHANGED,
    ) -> str:
        """Show what an action would change, and why other records are left alone. Nothing changes yet.

        Choose records by their ids, by a failure group, or by scope, state and prefix. Actions: retry, release,
        resolve-applied (with the result that deliveries get), resolve-not-applied, resolve-abandon, resolve-undo,
        forget. Show the preview to a person before you apply it.
        """
        if action not in ACTIONS:
            raise ConfigurationError(f"there is no action {action!r}", hint=f"choose one of: {', '.join(ACTIONS)}")
        if not (ids or group or scope or state or prefix):
            raise ConfigurationError("an action on all records is refused", hint="pass ids, a group, scope or prefix")
        chosen = ACTIONS[action] if result is None else replace(ACTIONS[action], result=result)
        filtered = None if ids or group else filter_from_text(scope=scope, state=state, prefix=prefix)
        preview = await self._admin.preview(
            chosen, ids=ids or (), group=group or None, wanted=filtered, limit=max(1, min(limit, MAX_CHANGED))
        )
        return reply(
            {
                "action": action,
                "meaning": DESCRIPTIONS[action],
                "changes": len(preview.targets),
                "records": [{"id": one.id.hex(), "scope": one.scope, "key": one.key, "state": one.state}
                            for one in preview.targets[:MAX_SHOWN]],
                "left_alone": preview.reasons,
                "more": preview.more,
            },
            preview=preview.encode() if preview.targets else None,
        )  # fmt: skip

    async def apply_preview(self, preview: str, why: str) -> str:
        """Apply a preview that a person has agreed to. `preview` is the text that preview_action returned.

        Records that have changed since the preview are left alone. `why` is written to the audit trail.
        """
        decoded = decode_preview(preview)
        if decoded.action.force:
            raise ConfigurationError("force is not available here", hint="use the command or the console")
        if len(decoded.targets) > MAX_CHANGED:
            raise ConfigurationError(f"one action changes at most {MAX_CHANGED} records", hint="preview fewer")
        applied = await self._admin.apply(decoded, why=_reason(why))
        return reply({"changed": len(applied.done), "left_alone": applied.reasons})

    async def pause_schedule(self, name: str, why: str) -> str:
        """Pause a schedule: no worker starts its slots until it is resumed."""
        return reply({"paused": await self._admin.pause_schedule(name, why=_reason(why))})

    async def resume_schedule(self, name: str, why: str) -> str:
        """Resume a paused schedule."""
        return reply({"resumed": await self._admin.resume_schedule(name, why=_reason(why))})

    async def run_schedule_now(self, name: str, why: str) -> str:
        """Ask the workers of a schedule to run it once now, within a minute. Returns the id of the run's record."""
        return reply({"id": await self._admin.run_schedule_now(name, why=_reason(why))})


def _reason(why: str) -> str:
    """Return the reason for the audit trail; a change without one is refused."""
    if not why.strip():
        raise ConfigurationError("a change needs a reason", hint="pass why, such as a sentence or a ticket")
    return why.strip()
