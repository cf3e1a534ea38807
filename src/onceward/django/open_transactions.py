"""Find Django's transactions that are open around a call: those that it joins, and those on other databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections

from onceward.engine.open_transaction import LOSS, OpenTransactions
from onceward.errors import ConfigurationError

from .configuration import configuration

if TYPE_CHECKING:
    from onceward.engine.engine import Engine
    from onceward.engine.job import Job

ATOMIC_HINT = "use `with once.atomic() as tx:` and tx.run or tx.call, or make this call outside transaction.atomic()"
ELSEWHERE_HINT = (
    'commit before this call; if the work does not use that database, declare it with open_transaction="ignore"'
)


class DjangoTransactions(OpenTransactions):
    """Also reports transactions on databases that do not hold the records. A call cannot join them."""

    hint = ATOMIC_HINT

    def to_join(self, engine: Engine, job: Job) -> Any | None:
        found = super().to_join(engine, job)
        if found is None:
            self._report_elsewhere(engine, job)
        return found

    def check_claim(self, engine: Engine, job: Job) -> None:
        super().check_claim(engine, job)
        self._report_elsewhere(engine, job)

    def _report_elsewhere(self, engine: Engine, job: Job) -> None:
        """Raise if the setting is `refuse`. Otherwise warn: the work may not use that database."""
        setting = job.policy.open_transaction
        alias = None if setting == "ignore" else _open_elsewhere()
        if alias is None:
            return
        message = f"a transaction is open on the database {alias!r}, which does not hold the records: {LOSS}"
        if setting == "refuse" and engine.rollout.enforces:
            raise ConfigurationError(message, key=job.key.text, hint=ELSEWHERE_HINT)
        self.warn(engine, job, message, ELSEWHERE_HINT)


def open_transaction() -> Any | None:
    """Return Django's connection to the records if a transaction is open on it, other than that of a `TestCase`."""
    connection = connections[configuration().database]
    return connection if _is_open(connection) else None


def _open_elsewhere() -> str | None:
    records = configuration().database
    opened = (one.alias for one in connections.all(initialized_only=True) if one.alias != records and _is_open(one))
    return next(opened, None)


def _is_open(connection: Any) -> bool:
    if connection.atomic_blocks:
        return any(not block._from_testcase for block in connection.atomic_blocks)  # noqa: SLF001 (Django has no other sign)
    if connection.connection is None:
        return not connection.settings_dict["AUTOCOMMIT"]
    return not connection.autocommit
