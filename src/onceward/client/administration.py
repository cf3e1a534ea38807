"""Inspect and change records manually: the sync methods of `Once`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onceward.engine import records
from onceward.engine.entry import Entry
from onceward.protocol.audit import AuditEntry
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import Finding, applied
from onceward.runtime.bridge import run

from .audit_identity import sign
from .base import BaseClient, by_text

if TYPE_CHECKING:
    from onceward.observe.rules import Broken
    from onceward.protocol.counters import CounterTotals
    from onceward.sagas.records import SagaEntry

    from .alerts import Alert
    from .erasure import Erased


class Administration(BaseClient):
    """The methods of `Once` that read, change or delete existing records."""

    def read(self, key: Any, *, name: str | None = None) -> SagaEntry | None:
        """Return the record under the key, or None. If it is a saga, its journal is `.saga`."""
        from onceward.sagas import records as saga_records  # imported here: few programs need it, and imports take time

        given = self.key(key, name=name)
        codec, _ = self.settings_for(given)
        return run(saga_records.read(self.engine, given, codec, by_text=by_text(key, name)))

    def forget(
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
        from onceward.sagas import records as saga_records

        return run(
            saga_records.forget(
                self.engine,
                self.key(key, name=name),
                force=force,
                by_text=by_text(key, name),
                seen=seen,
                signed=sign("forget", why, "forced" if force else ""),
            )
        )

    def resolve(self, key: Any, finding: applied | Finding, *, name: str | None = None, why: str | None = None) -> None:
        """Resolve a PARKED attempt with a `finding`: `applied(value)`, `not_applied` or `abandon`.

        If the key belongs to a function of this client, the value must have its return type. With `why`, it is audited.
        """
        from onceward.sagas import records as saga_records

        given = self.key(key, name=name)
        codec, policy = self.settings_for(given)
        run(
            saga_records.resolve(
                self.engine,
                given,
                finding,
                codec,
                policy,
                by_text=by_text(key, name),
                signed=sign("resolve", why),
            )
        )

    def purge(self, limit: int = 10_000, *, why: str | None = None) -> int:
        """Delete up to `limit` expired records. Return how many were deleted. With `why`, it is audited."""
        return run(records.purge(self.engine, limit, sign("purge", why)))

    def erase(
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
        gets one entry with `why`, without any key.
        """
        from .erasure import erase, erase_signature, erasure_filter

        wanted = erasure_filter(tenant, scope, prefix)
        signed = erase_signature(wanted, why)
        run(self.engine.ready())
        return run(erase(self.engine.store, wanted, signed, dry_run=dry_run))

    def audit(
        self, key: Any = None, *, name: str | None = None, within: Duration | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Return which manual changes were made and why, newest first: under this key, or under all keys.

        `within` is how far to look back, and `limit` the maximum number of entries.
        """
        return run(
            records.audit(
                self.engine,
                None if key is None else self.key(key, name=name),
                within=None if within is None else microseconds(within, "within"),
                limit=limit,
                by_text=by_text(key, name),
            )
        )

    def migrate(self) -> None:
        """Create or extend the store's tables, like `onceward migrate`. Do nothing if they are up to date."""
        run(records.migrate(self.engine))

    def stats(self, since: Duration = "24h") -> CounterTotals:
        """Return the counters of the last `since`, by scope, of all processes whose clients have `counters=True`."""
        from onceward.observe.figures import stats

        return run(stats(self.engine, microseconds(since, "since")))

    def check(
        self, *, rules: Mapping[str, Any] | None = None, alert: Alert | None = None, store_only: bool = False
    ) -> list[Broken]:
        """Return the health rules that are broken now; `rules` overrides thresholds.

        `alert` is called for each broken rule, at most once in 24 h. Four rules read records (PENDING,
        PARKED, FAILED, schedules). The others need counters (`counters=True`): without them, an empty list does not
        mean that these rules hold.

        Raise StoreNotSetUp if the store's tables are missing, and StoreUnavailable if it does not answer: call this
        when your program starts. With `store_only=True`, check nothing else: fast enough for a readiness probe.
        """
        run(records.check_store(self.engine))
        if store_only:
            return []
        from onceward.observe.figures import broken_rules
        from onceward.observe.thresholds import parse_thresholds

        from .alerts import alert_jobs, send_all

        thresholds = parse_thresholds(rules or {})
        found = run(broken_rules(self.engine, thresholds))
        if alert is not None:
            run(send_all(self, alert_jobs(self, found, alert, thresholds)))
        return found
