"""Inspect and change records manually: the async methods of `AsyncOnce`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceward.engine import records
from onceward.engine.entry import Entry
from onceward.observe.figures import broken_rules, stats
from onceward.observe.rules import Broken
from onceward.observe.thresholds import parse_thresholds
from onceward.operations.job_builder import key_object
from onceward.protocol.audit import AuditEntry
from onceward.protocol.counters import CounterTotals
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import Finding, applied
from onceward.sagas import records as saga_records
from onceward.sagas.records import SagaEntry

from .alerts import AsyncAlert, alert_jobs, send_all
from .audit_identity import sign
from .base import BaseClient, by_text
from .erasure import Erased, erase, erase_signature, erasure_filter


class AsyncAdministration(BaseClient):
    """The methods of `AsyncOnce` that read, change or delete existing records."""

    async def read(self, key: Any, *, name: str | None = None) -> SagaEntry | None:
        """Return the record under the key, or None. If it is a saga, its journal is `.saga`."""
        given = await key_object(self, key, name)
        codec, _ = self.settings_for(given)
        return await saga_records.read(self.engine, given, codec, by_text=by_text(key, name))

    async def forget(
        self,
        key: Any,
        *,
        name: str | None = None,
        force: bool = False,
        seen: Entry | None = None,
        why: str | None = None,
    ) -> bool:
        """Forget the record, so that the key can be claimed again. Return whether there was a record.

        Raise if a worker still holds its lease, unless `force` is set. `seen` is an entry that `read` returned: raise
        if the record has changed since. With `why`, the change is written to the audit trail.
        """
        return await saga_records.forget(
            self.engine,
            await key_object(self, key, name),
            force=force,
            by_text=by_text(key, name),
            seen=seen,
            signed=sign("forget", why, "forced" if force else ""),
        )

    async def resolve(
        self, key: Any, finding: applied | Finding, *, name: str | None = None, why: str | None = None
    ) -> None:
        """Resolve a PARKED attempt: `applied(value)`, `not_applied` or `abandon`. With `why`, it is audited.

        If the key belongs to a function of this client, the value must have its return type.
        """
        given = await key_object(self, key, name)
        codec, policy = self.settings_for(given)
        await saga_records.resolve(
            self.engine,
            given,
            finding,
            codec,
            policy,
            by_text=by_text(key, name),
            signed=sign("resolve", why),
        )

    async def purge(self, limit: int = 10_000, *, why: str | None = None) -> int:
        """Delete up to `limit` expired records. Return how many were deleted. With `why`, it is audited."""
        return await records.purge(self.engine, limit, sign("purge", why))

    async def erase(
        self,
        *,
        tenant: str | None = None,
        scope: str | None = None,
        prefix: str | None = None,
        dry_run: bool = True,
        why: str = "",
    ) -> Erased:
        """Erase all records of a tenant or scope, or with a key prefix, and everything that names their keys.

        That includes notes, results, latest states, audit entries, and counters by tenant. By default nothing is
        deleted: the returned counts are a preview. Pass `dry_run=False` to erase. Keys that a worker is processing are
        kept and counted; erase again later. If an erased key is delivered again, it runs as new work. The audit trail
        gets one entry without any key.
        """
        wanted = erasure_filter(tenant, scope, prefix)
        signed = erase_signature(wanted, why)
        await self.engine.ready()
        return await erase(self.engine.store, wanted, signed, dry_run=dry_run)

    async def audit(
        self, key: Any = None, *, name: str | None = None, within: Duration | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Return which manual changes were made and why, newest first: under this key, or under all keys."""
        return await records.audit(
            self.engine,
            None if key is None else await key_object(self, key, name),
            within=None if within is None else microseconds(within, "within"),
            limit=limit,
            by_text=by_text(key, name),
        )

    async def migrate(self) -> None:
        """Create or extend the store's tables, like `onceward migrate`. Do nothing if they are up to date."""
        await records.migrate(self.engine)

    async def stats(self, since: Duration = "24h") -> CounterTotals:
        """Return the counters of the last `since`, by scope, of all processes whose clients have `counters=True`."""
        return await stats(self.engine, microseconds(since, "since"))

    async def check(
        self, *, rules: Mapping[str, Any] | None = None, alert: AsyncAlert | None = None, store_only: bool = False
    ) -> list[Broken]:
        """Return the health rules that are broken now; `rules` overrides thresholds.

        `alert` is called for each broken rule, at most once in 24 h. Four rules read records (PENDING,
        PARKED, FAILED, schedules). The others need counters (`counters=True`): without them, an empty list does not
        mean that these rules hold.

        Raise StoreNotSetUp if the store's tables are missing, and StoreUnavailable if it does not answer: call this
        when your program starts. With `store_only=True`, check nothing else: fast enough for a readiness probe.
        """
        await records.check_store(self.engine)
        if store_only:
            return []
        thresholds = parse_thresholds(rules or {})
        found = await broken_rules(self.engine, thresholds)
        if alert is not None:
            await send_all(self, alert_jobs(self, found, alert, thresholds))
        return found
