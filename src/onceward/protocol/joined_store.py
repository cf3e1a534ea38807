"""What a store offers inside the transaction of a caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .requests import Answer, AnySettlement, ClaimRequest, Renewal
from .runtime import Runtime

if TYPE_CHECKING:
    from .latest import EntityState, EventDelivery, LatestResult, Retention


class Transactions(Protocol):
    """Works inside the caller's own transaction."""

    def join(self, connection: Any, runtime: Runtime) -> JoinedStore:
        """Return a store that works inside the caller's transaction on this `connection`. Nothing is sent yet.

        `runtime` is the one of the caller. Raise `ConfigurationError` if the connection is of an unknown kind, or is
        not to the database of this store.
        """
        ...


class Commits(Protocol):
    """Reports how a transaction ended, even if the reply to its COMMIT was lost."""

    async def committed(self, number: str, *, timeout: float) -> bool:
        """Wait until a transaction has ended. Return whether it committed.

        `number` is that of the `JoinedStore`. If the transaction is still open after `timeout` seconds, raise
        `StoreUnavailable`.
        """
        ...


class AppliesEvents(Protocol):
    """Applies events to the latest state of their entities, by the rules of `protocol.latest`.

    `timeout` bounds a call in seconds. A store that cannot answer in time raises StoreUnavailable.
    """

    async def apply_events(
        self, deliveries: Sequence[EventDelivery], keep: Retention, *, timeout: float
    ) -> list[LatestResult]:
        """Return one result per delivery, in their order, as if they had been applied one after the other.

        All `deliveries` of one entity in the batch are applied in one atomic step, together with their marks. There is
        no guarantee across entities. Orders are compared byte by byte. The call may be repeated: a delivery that was
        applied before is then a duplicate, and the state does not change. `keep` is how long marks and deleted entities
        are kept.
        """
        ...

    async def read_latest(self, ids: Sequence[bytes], *, timeout: float) -> list[EntityState | None]:
        """Return the state of each of the entities `ids`; None if there is none, or a deletion has expired."""
        ...


class JoinedStore(AppliesEvents, Protocol):
    """A store that works inside the caller's transaction. It never commits. `timeout` is in seconds."""

    exclusive: bool
    """Whether the open transaction blocks every other writer, including our own heartbeat."""

    number: str | None
    """The id of the transaction, if the store can tell later whether it committed (`Commits`)."""

    block: str
    """What the caller writes after `with` to open such a transaction, for error messages."""

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        """Claim keys as `Store.claim` does, in the transaction. Return one answer per item of `requests`, in order."""
        ...

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        """Renew leases as `Store.renew` does, in the transaction. Return one answer per item of `renewals`."""
        ...

    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]:
        """Record results as `Store.settle` does, in the transaction. Return one answer per item of `settlements`."""
        ...

    def is_open(self) -> bool:
        """Return whether the caller's transaction is neither committed nor rolled back."""
        ...

    def is_lost(self) -> bool:
        """Return whether the caller's connection broke, or was closed because a call timed out."""
        ...

    def blocks_writes(self) -> bool:
        """Return whether the transaction may block the store's own writes. Thread-safe, without side effects."""
        ...

    async def begin(self, *, timeout: float) -> None:
        """Set a savepoint."""

    async def keep(self) -> bool:
        """Release the savepoint, keeping what was written. Return False if the transaction has ended meanwhile."""
        ...

    async def undo(self) -> bool:
        """Roll back to the savepoint; the transaction stays usable. Return False if it has ended meanwhile."""
        ...

    async def abandon(self) -> bool:
        """Roll back a transaction that was opened after the joined one ended. Return whether there was one."""
        ...
