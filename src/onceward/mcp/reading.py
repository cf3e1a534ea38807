"""The tools that read. None of them changes anything."""

from __future__ import annotations

from typing import Final

from onceward.administration.admin import Admin
from onceward.administration.filter_text import filter_from_text

from .data import reply

MAX_ROWS: Final = 100


def rows(limit: int) -> int:
    """Return the number of rows to read."""
    return max(1, min(limit, MAX_ROWS))


class ReadingTools:
    """One method per tool; its docstring is what a model reads about it."""

    def __init__(self, admin: Admin, *, values: bool) -> None:
        self._admin = admin
        self._values = values

    async def overview(self, since: str = "24h") -> str:
        """Summarise the store: outcomes by hour and scope, unfinished and failed work, schedules and broken rules.

        `since` is a duration such as 24h or 7d. Start here.
        """
        return reply(await self._admin.overview(since))

    async def find_key(self, text: str, limit: int = 20) -> str:
        """Find records by what people know: a record id, an exact key, or the start of a key."""
        return reply(await self._admin.find(text, limit=rows(limit)))

    async def list_keys(
        self,
        *,
        state: str = "",
        scope: str = "",
        tenant: str = "",
        prefix: str = "",
        note: str = "",
        error_type: str = "",
        claimed_since: str = "",
        claimed_before: str = "",
        cursor: str = "",
        limit: int = 20,
    ) -> str:
        """List records, newest first. All filters are optional, and all that are given must match.

        state: PENDING, COMPLETED, FAILED or PARKED. scope: app/operation, or app/operation@tenant. prefix: the start of
        the key. Times are ISO 8601, or a duration ago, such as 2h. If the reply has a cursor, there may be more: pass
        it with the same filters.
        """
        wanted = filter_from_text(
            state=state, scope=scope, tenant=tenant, prefix=prefix, note=note, error_type=error_type,
            since=claimed_since, before=claimed_before,
        )  # fmt: skip
        return reply(await self._admin.keys(wanted, cursor=cursor or None, limit=rows(limit)))

    async def explain_key(self, id: str) -> str:
        """Explain one record: what happened, what a delivery does now, its timeline, policy, audit and actions.

        `id` is the 64 hexadecimal digits that the other tools return.
        """
        return reply(await self._admin.key(id, values=self._values))

    async def list_parked(self, scope: str = "", tenant: str = "", cursor: str = "", limit: int = 20) -> str:
        """List work whose outcome is unknown, with the evidence. An operator must decide how each ended."""
        wanted = filter_from_text(scope=scope, tenant=tenant)
        return reply(await self._admin.parked(wanted, cursor=cursor or None, limit=rows(limit)))

    async def list_failures(self, scope: str = "", tenant: str = "") -> str:
        """Group the latest failures by exception type and by the function that raised."""
        return reply(await self._admin.failures(filter_from_text(scope=scope, tenant=tenant)))

    async def list_failure_group(self, group: str, limit: int = 20) -> str:
        """List the records of one failure group. `group` is the id that list_failures returns."""
        return reply((await self._admin.failure_group(group))[: rows(limit)])

    async def list_sagas(self, scope: str = "", cursor: str = "", limit: int = 20) -> str:
        """List unfinished sagas, the progress of their steps, and which step blocks each."""
        wanted = filter_from_text(scope=scope)
        return reply(await self._admin.sagas(wanted, cursor=cursor or None, limit=rows(limit)))

    async def list_schedules(self) -> str:
        """List schedules: the pattern in words, the next slot, and whether each is overdue, paused or running."""
        return reply(await self._admin.schedules())

    async def list_workers(self) -> str:
        """List the workers that hold a lease now. Idle workers are not known."""
        return reply(await self._admin.workers())

    async def list_dead_letters(self, cursor: str = "", limit: int = 20) -> str:
        """List messages that could not be processed."""
        return reply(await self._admin.dead_letters(cursor=cursor or None, limit=rows(limit)))

    async def list_rules(self) -> str:
        """List the health rules, which of them are broken, and what to do."""
        return reply(await self._admin.rules())

    async def list_audit(self, id: str = "", within: str = "", limit: int = 20) -> str:
        """List manual changes: by whom, when, why, and from which state to which. `within` is a duration."""
        return reply(await self._admin.audit(id=id or None, within=within or None, limit=rows(limit)))
