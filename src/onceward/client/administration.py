"""Inspect and change records manually: the sync methods of `Once`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onceward.engine import records
from onceward.engine.entry import Entry
from onceward.protocol.audit import AuditEntry
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import Finding, applied
from onceward.runtime.threads import run

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
        """Return the record under the key, or None. If it is a saga, its journal is `.saga`.

        Args:
            key: The key, a `Key` object, or the readable key that a listing shows.
            name: The operation that the key belongs to.

        Raises:
            StoreUnavailable: The store does not answer.
        """
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
        """Forget the record, so that the next call with this key runs.

        Args:
            key: The key, a `Key` object, or the readable key that a listing shows.
            name: The operation that the key belongs to.
            force: Forget the record even if a worker still holds its lease. That worker's result is then rejected.
            seen: An entry that `read` returned. If the record has changed since, nothing is forgotten.
            why: The reason. With it, the change is written to the audit trail.

        Returns:
            Whether there was a record.

        Raises:
            AlreadyRunning: A worker holds the lease, and `force` is not set.
            NotAcquired: The record has changed since it was `seen`.
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
        """Resolve an attempt that is PARKED, or whose worker died: state whether its work took effect.

        Args:
            key: The key, a `Key` object, or the readable key that a listing shows.
            finding: `applied(value)` completes the record with this result. `not_applied` lets the next call run.
                `abandon` fails the record for good.
            name: The operation that the key belongs to.
            why: The reason. With it, the change is written to the audit trail.

        Raises:
            NotAcquired: The record under this key is missing, or has changed in the meantime. Or it is neither PARKED,
                nor PENDING with an expired lease.
            ConfigurationError: The value cannot be stored. If the key belongs to a function of this client, the value
                must have its return type.
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
        """Delete expired records.

        Args:
            limit: The maximum number of records to delete. Repeat the call until it returns fewer.
            why: The reason. With it, the purge is written to the audit trail.

        Returns:
            How many records were deleted.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        return run(records.purge(self.engine, limit, sign("purge", why)))

    def erase(
        self,
        *,
        tenant: str | None = None,
        scope: str | None = None,
        prefix: str | None = None,
        key: str | None = None,
        dry_run: bool = True,
        why: str = "",
    ) -> Erased:
        """Erase all records of a tenant, scope, key or key prefix, and everything that names their keys.

        That includes notes, results, latest states, audit entries, and counters by tenant. By default nothing is
        deleted: the returned counts are a preview. Keys that a worker is processing are kept and counted; erase again
        later. If an erased key is delivered again, it runs as new work.

        Args:
            tenant: Erase the records of this tenant.
            scope: Erase the records of this scope, written as in listings.
            prefix: Erase only readable keys that start with this text. `mail:jane` also matches `mail:janet`.
            key: Erase only this readable key.
            dry_run: Only count. Pass False to erase.
            why: The reason. The audit trail gets one entry with it, without any key.

        Returns:
            What was erased, or would be.

        Raises:
            ConfigurationError: None of `tenant`, `scope`, `prefix` and `key` is given, both `prefix` and `key` are
                given, or the store cannot erase.
            StoreBroken: The store is damaged. If the message says that the erasure is incomplete, the steps that the
                damage does not affect were completed.
        """
        from .erasure import erase, erase_signature, erasure_filter

        wanted = erasure_filter(tenant, scope, prefix, key)
        signed = erase_signature(wanted, why)
        run(self.engine.ready())
        return run(erase(self.engine.store, wanted, signed, dry_run=dry_run))

    def audit(
        self, key: Any = None, *, name: str | None = None, within: Duration | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Return which manual changes were made, by whom and why, newest first.

        Args:
            key: Only changes of this key. By default, of all keys.
            name: The operation that the key belongs to.
            within: How far to look back, such as `"7d"`. By default, as far as the trail is kept.
            limit: The maximum number of entries.

        Raises:
            StoreUnavailable: The store does not answer.
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
        """Return the counters by scope, of all processes whose clients have `counters=True`.

        Args:
            since: How far to look back, in whole hours. The current hour counts as one.

        Raises:
            ConfigurationError: The store keeps no counters.
        """
        from onceward.observe.figures import stats

        return run(stats(self.engine, microseconds(since, "since")))

    def check(
        self, *, rules: Mapping[str, Any] | None = None, alert: Alert | None = None, store_only: bool = False
    ) -> list[Broken]:
        """Return the health rules that are broken now. Call it when your program starts, too.

        Four rules read records (PENDING, PARKED, FAILED, schedules). The others need counters (`counters=True`):
        without them, an empty list does not mean that these rules hold.

        Args:
            rules: Thresholds that override the defaults, by the name of the rule.
            alert: Called for each broken rule, once in 24 hours per rule and scope, however many processes check. If
                all PARKED or failed records of a scope are settled, it is called for the next one at once.
            store_only: Check only that the store answers and has its tables: fast enough for a readiness probe.

        Returns:
            One `Broken` per broken rule and scope. Empty if none is, or with `store_only`.

        Raises:
            StoreNotSetUp: The store's tables are missing.
            StoreUnavailable: The store does not answer.
            ConfigurationError: `rules` names an unknown rule.
        """
        from .async_administration import check_rules  # imported here: it loads the rules

        return run(check_rules(self, rules, alert, store_only=store_only))
