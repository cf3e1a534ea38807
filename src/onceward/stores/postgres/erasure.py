"""Erase everything that names a key from every table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from onceward.protocol.audit import AuditSignature, purge_entry
from onceward.stores.sql_capabilities import SqlErasure

from .maintenance import CallContext, column_type, insert_audit


class PostgresErasure(SqlErasure):
    """The erasure of `PostgresStore`."""

    async def _with_reader(self, context: CallContext, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return await work(context, *arguments)

    async def _change_rows(self, context: CallContext, text: str, keys: Sequence[Any]) -> int:
        matches = f"= ANY ($1::{column_type(keys[0])}[])"
        filled = text.format(prefix=context.prefix, matches=matches) + " RETURNING 1"
        return len(await context.connection.query(filled, context.deadline, keys))

    async def _add_purge_entry(self, context: CallContext, signed: AuditSignature, count: int) -> None:
        await insert_audit(context, purge_entry(signed, count, await context.read_time()))
