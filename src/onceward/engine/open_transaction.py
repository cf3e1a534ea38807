"""Calls inside a transaction that the caller has already opened on the record's own database.

If such a call committed its record separately, a later rollback of the caller would undo the rows and keep the record:
the work would count as done, and be lost. Integrations (SQLAlchemy, Django) therefore register a function that finds
the open transaction. The setting `open_transaction` says what happens then: join it, refuse the call, or warn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward.errors import ConfigurationError
from onceward.protocol.record import AfterCrash

from .job import Job

if TYPE_CHECKING:
    from .attempt import Attempt
    from .engine import Engine

FindTransaction = Callable[[], Any | None]
"""Returns the connection or session whose transaction is open around the current call, or None.

Only of the database that holds the records, and only what `once.within` accepts."""

WITHIN_HINT = "use `with once.within(session) as tx:` and tx.run or tx.call, or commit before this call"
LOSS = "a rollback of it would undo the rows, and the record would still say that the work is done"


class Finder(NamedTuple):
    """What one integration registers. `uncommitted` finds a transaction that has changes which are not committed."""

    find: FindTransaction
    uncommitted: FindTransaction


class OpenTransactions:
    """The registered finders of one client, and which scopes have been warned about."""

    hint = WITHIN_HINT

    def __init__(self) -> None:
        self.finders: list[Finder] = []
        self._warned: set[str] = set()

    def find(self) -> Any | None:
        """Return the first open transaction that a finder returns, or None."""
        return next((found for one in self.finders if (found := one.find()) is not None), None)

    def has_uncommitted(self) -> bool:
        return any(one.uncommitted() is not None for one in self.finders)

    def to_join(self, engine: Engine, job: Job) -> Any | None:
        """Return the transaction that this call must join, or None. Raise or warn if the setting says so."""
        setting = job.policy.open_transaction
        if not self.finders or setting == "ignore":
            return None
        connection = self.find()
        if connection is None:
            return None
        if setting == "join":
            _refuse_needed_claim(job)
            return connection
        self._report(engine, job, f"a transaction is open around this call: {LOSS}")
        return None

    def check_claim(self, engine: Engine, job: Job) -> None:
        """Raise or warn before a claim that cannot join: a block, a saga, a slot, a request or a queue delivery."""
        if job.policy.open_transaction != "ignore" and self.find() is not None:
            self._report(engine, job, f"a transaction is open around this claim, which cannot join it: {LOSS}")

    def check_returned(self, attempt: Attempt) -> None:
        """Raise or warn if the work has returned, and left changes in a transaction that is still open."""
        engine, job = attempt.engine, attempt.job
        if job.policy.open_transaction != "ignore" and self.has_uncommitted():
            if job.policy.open_transaction != "warn":
                attempt.hurry()  # on SQLite, that transaction may prevent the store from recording the failure
            self._report(engine, job, f"the work returned without committing its changes: {LOSS}")

    def _report(self, engine: Engine, job: Job, message: str) -> None:
        """Raise. With `warn`, and in the mode observe, emit one event per operation instead."""
        if job.policy.open_transaction != "warn" and engine.rollout.enforces:
            raise ConfigurationError(message, key=job.key.text, hint=self.hint)
        self.warn(engine, job, message, self.hint)

    def warn(self, engine: Engine, job: Job, message: str, hint: str) -> None:
        """Emit one event per operation."""
        if job.key.scope.text not in self._warned:
            self._warned.add(job.key.scope.text)
            engine.emit("open_transaction", job.key, reason=message, error=hint)


def _refuse_needed_claim(job: Job) -> None:
    """Raise if the policy needs a claim that survives a rollback: a joined claim does not."""
    if job.policy.after_crash is not AfterCrash.RERUN:
        raise ConfigurationError(
            "a transaction is open around this call. If the call joined it, a crash would undo the claim, and "
            f"after_crash={job.policy.after_crash.name.lower()!r} would have no effect",
            key=job.key.text,
            hint="commit before this call",
        )
