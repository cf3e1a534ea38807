"""Inspect and change records manually: the sync methods of `Once`, made from the async ones of `AsyncOnce`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onceward.runtime.bridge import run

from .async_administration import AsyncAdministration, check_rules
from .base import BaseClient
from .blocking import blocking

if TYPE_CHECKING:
    from onceward.observe.rules import Broken

    from .alerts import Alert


class Administration(BaseClient):
    """The methods of `Once` that read, change or delete existing records."""

    read = blocking(AsyncAdministration.read)
    forget = blocking(AsyncAdministration.forget)
    resolve = blocking(AsyncAdministration.resolve)
    purge = blocking(AsyncAdministration.purge)
    erase = blocking(AsyncAdministration.erase)
    audit = blocking(AsyncAdministration.audit)
    migrate = blocking(AsyncAdministration.migrate)
    stats = blocking(AsyncAdministration.stats)

    def check(
        self, *, rules: Mapping[str, Any] | None = None, alert: Alert | None = None, store_only: bool = False
    ) -> list[Broken]:
        """Return the health rules that are broken now. Call it when your program starts, too.

        Four rules read records (PENDING, PARKED, FAILED, schedules). The others need counters (`counters=True`):
        without them, an empty list does not mean that these rules hold.

        Args:
            rules: Thresholds that override the defaults, by the name of the rule.
            alert: Called for each broken rule, at most once in 24 hours, however many processes check.
            store_only: Check only that the store answers and has its tables: fast enough for a readiness probe.

        Returns:
            One `Broken` per broken rule and scope. Empty if none is, or with `store_only`.

        Raises:
            StoreNotSetUp: The store's tables are missing.
            StoreUnavailable: The store does not answer.
            ConfigurationError: `rules` names an unknown rule.
        """
        return run(check_rules(self, rules, alert, store_only=store_only))
