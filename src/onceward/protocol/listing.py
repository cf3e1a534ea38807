"""Listings for people: which records they show, one page of them, and what a store may offer for them.

Records in listings have no results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Struct

from .note import RESERVED, SAGA
from .record import Record, RecordState

UNFINISHED: Final = (RecordState.PENDING, RecordState.FAILED, RecordState.PARKED)
WORK_STATES: Final = (*UNFINISHED, RecordState.COMPLETED)
"""All states except FREE: free records contain no work, only a token."""


class ListingFilter(Struct, frozen=True, kw_only=True):
    """Which records to list. All fields that are set must match; by default, all records that contain work.

    - `scopes`, `tenants`: any of these; empty means all. A scope is compared as it is displayed, with its tenant. A
      scope without a tenant includes the records of all tenants.
    - `id`: the start of the record's id, in hexadecimal digits.
    - `note`: a part of a note, `name=value`, or a part of any value.
    - `claimed_since`, `claimed_before`: the time of the last claim, in µs on the store's clock.
    """

    states: tuple[RecordState, ...] = WORK_STATES
    """Any of these states. By default all except FREE, whose records contain no work."""
    scopes: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    prefix: str = ""
    """The start of the readable key. Empty matches every key."""
    id: str = ""
    note: str = ""
    error_type: str = ""
    """The class name of the stored exception, such as `ValueError`. Empty matches every record."""
    claimed_since: int | None = None
    claimed_before: int | None = None
    sagas: bool = False
    """Only sagas."""

    @property
    def only_unfinished(self) -> bool:
        """Whether only records that are in the index of unfinished records can match."""
        return RecordState.COMPLETED not in self.states

    def matches(self, record: Record) -> bool:
        """Return whether the record matches, for stores that filter one by one."""
        return (
            record.state in self.states
            and self.matches_scope(record.scope)
            and record.key.startswith(self.prefix)
            and record.id.hex().startswith(self.id.lower())
            and (not self.error_type or record.error_type == self.error_type)
            and (self.claimed_since is None or record.token >= self.claimed_since)
            and (self.claimed_before is None or record.token < self.claimed_before)
            and matches_note(record.note, self.note)
            and (not self.sagas or bool(record.note.get(SAGA)))
        )

    def matches_scope(self, scope: str) -> bool:
        operation, _, tenant = scope.partition("@")
        return (not self.scopes or scope in self.scopes or operation in self.scopes) and (
            not self.tenants or tenant in self.tenants
        )


def matches_note(note: Mapping[str, str], wanted: str) -> bool:
    """Return whether a note of the user contains the text; `name=value` looks only into that note."""
    if not wanted:
        return True
    own = {name: text for name, text in note.items() if not name.startswith(RESERVED)}
    name, equals, value = wanted.partition("=")
    if equals and name in own:
        return value in own[name]
    return any(wanted in text for text in own.values())


class ListingPage(Struct, frozen=True):
    """One page, newest first. `cursor` None means that it was the last page.

    A store visits a limited number of records per page. So a page may be short although there are more matches: then
    it has a cursor, and all records claimed after `searched_back_to` (µs) were visited.
    """

    records: list[Record]
    cursor: bytes | None
    now: int
    searched_back_to: int | None = None
    unreadable: tuple[str, ...] = ()


class Listing(Protocol):
    """Lists records for people by an index, without their results. No call visits all records."""

    async def newest(self, wanted: ListingFilter, *, cursor: bytes | None, limit: int, timeout: float) -> ListingPage:
        """Return matching records, newest first: by their last claim, or as they were first stored.

        The call visits a limited number of records, so the page may be short although it has a cursor.
        """
        ...

    async def oldest_pending(self, wanted: ListingFilter, *, limit: int, timeout: float) -> ListingPage:
        """Return the PENDING records of these scopes and tenants that were claimed first, and no cursor."""
        ...

    async def count_unfinished(self, limit: int, *, timeout: float) -> dict[RecordState, int]:
        """Return how many records are PENDING, FAILED and PARKED, each at most `limit`."""
        ...
