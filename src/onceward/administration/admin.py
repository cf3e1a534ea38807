"""`Admin`: everything that operators read and change, by one method per question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict, replace

from onceward.client.audit_identity import user_and_host
from onceward.errors import ConfigurationError
from onceward.observe.thresholds import Thresholds
from onceward.protocol.audit import AuditEntry, AuditFilter
from onceward.protocol.counters import HOUR
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.listing import UNFINISHED, ListingFilter
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.results.cipher import Cipher
from onceward.results.untyped import fields_codec

from . import bulk, details, failures, listing, overview, schedules, states
from .actions import Action, Encode, encode_plain
from .bulk import Applied, OnProgress, Preview
from .model import (
    DeadLetters,
    EntityPage,
    Evidence,
    FailureGroups,
    ImportRow,
    KeyDetail,
    KeyPage,
    KeyRow,
    Overview,
    Page,
    RuleRow,
    SagaRow,
    ScheduleDetail,
    ScheduleRow,
    Workers,
)
from .record_view import key_row, worker_rows
from .redaction import Redaction
from .sagas import journal_or_none, saga_row
from .times import time_of
from .totals import scopes_of
from .typed_result import encoder_of
from .visible import ALL, Visible

if TYPE_CHECKING:
    from onceward.client.base import BaseClient
    from onceward.people.aio import AsyncPeople
    from onceward.people.people import People
    from onceward.people.review import Review, Seen

PAGE: Final = 50
EVERYTHING: Final = ListingFilter()
TIMEOUT: Final = 10.0
MAX_ENTRIES_READ: Final = 10_000
"""The latest entries of the audit trail among which a limited operator finds those of visible records."""
DEFAULT_THRESHOLDS: Final = Thresholds()


class Admin:
    """Reads and changes the records of a store for operators.

    `Admin.of(once)` uses the store of a client, its cipher and its schedules; `Admin(store)` only an open store. With
    `Once`, drive the methods with `run`: `run(admin.overview())`. With `AsyncOnce`, await them.

    - `visible`: the scopes and tenants that the operator may see and change; by default all.
    - `who`: the operator, for the audit trail; by default the user of the process.
    - `redaction`: which fields of results and inputs are hidden.
    - `people`: the `People` or `AsyncPeople` whose open questions `reviews` returns.
    - `thresholds`: the limits of the rules.
    - `cipher`, `accept_plain`: how results are decrypted, as in `Once`.
    - `schedules`: the declared schedules of a client, by name.
    - `ready`: opens the store, if it is not open. `offload`: runs blocking work in a thread. `encode`: encodes the
      result of `resolve`, by default as plain values. `Admin.of` sets them; its `encode` uses the types and the cipher
      of the client's functions.

    All lists return pages of at most `limit` rows, and take the `cursor` of the previous page. `wanted` filters them.
    `why` is the reason in the audit trail. Invalid filters and names raise `ConfigurationError`.
    """

    def __init__(
        self,
        store: Store,
        *,
        visible: Visible = ALL,
        who: str | None = None,
        redaction: Redaction | None = None,
        cipher: Cipher | None = None,
        accept_plain: bool = False,
        schedules: Mapping[str, Any] | None = None,
        people: People | AsyncPeople | None = None,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        ready: Callable[[], Awaitable[None]] | None = None,
        offload: Callable[..., Awaitable[Any]] | None = None,
        encode: Encode = encode_plain,
    ) -> None:
        self.store = store
        self.visible = visible
        self.people = people
        self.thresholds = thresholds
        self.redaction = redaction or Redaction()
        self.codec = fields_codec(cipher, accept_plain=accept_plain)
        self.declared = schedules or {}
        self._who = who
        self._ready = ready
        self._offload = offload
        self._encode = encode

    @classmethod
    def of(cls, client: BaseClient, **options: Any) -> Admin:
        """Return the `Admin` of a client's store. `options` are those of `Admin`."""
        own: dict[str, Any] = {
            "cipher": client._cipher,  # noqa: SLF001 (the client's own classes call this)
            "accept_plain": client._accept_plain,  # noqa: SLF001 (as above)
            "schedules": client.schedules,
            "ready": client.engine.ready,
            "offload": client.engine.runtime.offload,
            "encode": encoder_of(client),
        }
        return cls(client.store, **{**own, **options})

    def limited(self, visible: Visible = ALL, who: str | None = None) -> Admin:
        """Return the same for another operator, who may see and change only what is visible to them."""
        other = object.__new__(Admin)
        other.__dict__.update(self.__dict__)
        other.visible, other._who = visible, who if who is not None else self._who
        return other

    @property
    def who(self) -> str:
        """The operator, as the audit trail names them."""
        return user_and_host() if self._who is None else self._who

    async def ready(self) -> None:
        """Open the store of the client, if it is not open."""
        if self._ready is not None:
            await self._ready()

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def overview(self, since: Duration = "24h") -> Overview:
        """Return the figures of the first page: outcomes by hour and scope, unfinished work, schedules, rules.

        `since` is how far to look back, rounded up to whole hours.
        """
        await self.ready()
        hours = max(1, -(-microseconds(since, "since") // HOUR))
        return await overview.read_overview(self, hours)

    async def keys(
        self, wanted: ListingFilter = EVERYTHING, *, cursor: str | None = None, limit: int = PAGE
    ) -> KeyPage:
        """Return a page of keys, newest first. `cursor` is that of the previous page, with the same filter."""
        await self.ready()
        page = await listing.visible_page(self, wanted, cursor=cursor, limit=limit)
        return KeyPage(
            [key_row(one, page.now) for one in page.records],
            listing.encode_cursor(page.cursor),
            time_of(page.now),
            time_of(page.searched_back_to),
            page.unreadable if self.visible.everything else (),
        )

    async def find(self, text: str, *, limit: int = PAGE) -> list[KeyRow]:
        """Return the records that match the `text` of a search box: an id, an exact key, or the start of a key.

        An exact key is found directly in every scope that has counters. Otherwise the latest records are searched.
        """
        await self.ready()
        return await details.find(self, text.strip(), limit)

    async def key(self, id: str, *, values: bool = False) -> KeyDetail | None:
        """Return everything about one record, or None. `id` is its hexadecimal id. Values only with `values`."""
        await self.ready()
        return await details.key_detail(self, id, values=values)

    async def parked(
        self, wanted: ListingFilter = EVERYTHING, *, cursor: str | None = None, limit: int = PAGE
    ) -> Page[Evidence]:
        """Return the parked records with what is known about each, for the operator who decides."""
        await self.ready()
        return await details.parked(self, wanted, cursor, limit)

    async def failures(self, wanted: ListingFilter = EVERYTHING) -> FailureGroups:
        """Return the latest failures, grouped by exception type and the function that raised."""
        await self.ready()
        return await failures.failure_groups(self, wanted)

    async def failure_group(self, group: str, wanted: ListingFilter = EVERYTHING) -> list[KeyRow]:
        """Return the records of one failure group, the latest first. `group` is the id that `failures` returned."""
        await self.ready()
        records, now = await self.group_records(group, wanted)
        return [key_row(one, now) for one in records]

    async def sagas(
        self, wanted: ListingFilter = EVERYTHING, *, cursor: str | None = None, limit: int = PAGE
    ) -> Page[SagaRow]:
        """Return a page of sagas and their steps. By default, completed ones are left out."""
        await self.ready()
        if wanted.states == EVERYTHING.states:
            wanted = replace(wanted, states=UNFINISHED)
        page = await listing.visible_page(self, replace(wanted, sagas=True), cursor=cursor, limit=limit)
        found = ((one, journal_or_none(one)) for one in page.records)
        rows = [saga_row(record, page.now, journal) for record, journal in found if journal is not None]
        return Page(rows, listing.encode_cursor(page.cursor), time_of(page.now))

    async def schedules(self) -> list[ScheduleRow]:
        """Return all schedules. Their patterns are known only if the client declares them."""
        await self.ready()
        return await schedules.rows(self)

    async def schedule(self, name: str) -> ScheduleDetail | None:
        """Return a schedule by its `name`, with its latest and next slots; None if the client does not declare it."""
        await self.ready()
        return await schedules.detail(self, name)

    async def workers(self) -> Workers:
        """Return the workers that hold a lease now. Idle workers are not known to the store."""
        await self.ready()
        wanted = ListingFilter(states=(RecordState.PENDING,))
        records, now, more = await listing.all_visible(self, wanted, limit=failures.MAX_VISITED)
        return Workers(worker_rows(records, now), more, time_of(now))

    async def state_scopes(self) -> list[str]:
        """Return the scopes that have latest states, as far as counters know them."""
        await self.ready()
        return await states.state_scopes(self)

    async def entities(
        self, scope: str, *, cursor: str | None = None, limit: int = PAGE, values: bool = False
    ) -> EntityPage:
        """Return a page of the entities of a `scope` that have a latest state. Values only with `values`."""
        await self.ready()
        return await states.entities(self, scope, cursor, limit, values=values)

    async def dead_letters(self, *, cursor: str | None = None, limit: int = PAGE) -> DeadLetters:
        """Return messages that were parked, and how many were moved to dead letter queues in the last day."""
        await self.ready()
        return await details.dead_letters(self, cursor, limit)

    async def reviews(self, limit: int = PAGE) -> list[Review]:
        """Return pairs that may be one person. Empty without `people`."""
        if self.people is None:
            return []
        found: list[Review] = await self._in_thread(_sync(self.people).reviews, limit)
        return found

    async def imports(self) -> list[ImportRow]:
        """Return how far the imports into `people` have come. Empty without `people`."""
        if self.people is None:
            return []
        from onceward.imports.people import imports_of  # imported here: few stores have imports

        found = await self._in_thread(imports_of, _sync(self.people))
        return [ImportRow(one.name, one.state, one.done, **asdict(one.counts), rejects=one.rejects) for one in found]

    async def rules(self) -> list[RuleRow]:
        """Return every rule, and where it is broken now."""
        await self.ready()
        return await overview.read_rules(self)

    async def audit(
        self, *, id: str | None = None, within: Duration | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Return manual changes, newest first: of the record with this `id`, or of all that are visible.

        `within` is how far to look back, such as `"7d"`.
        """
        await self.ready()
        wanted = AuditFilter(
            id=None if id is None else details.parsed_id(id),
            scope=self.visible.scopes[0] if len(self.visible.scopes) == 1 and "@" in self.visible.scopes[0] else None,
            within=None if within is None else microseconds(within, "within"),
        )
        if self.visible.everything:
            return await self.store.audit(wanted, limit=limit, timeout=listing.TIMEOUT)
        # Entries of others do not count towards the limit.
        found = await self.store.audit(wanted, limit=max(limit, MAX_ENTRIES_READ), timeout=listing.TIMEOUT)
        return [one for one in found if one.scope and self.visible.includes(one.scope)][:limit]

    async def scopes(self) -> list[str]:
        """Return the visible scopes that have counters, for the choices of a filter."""
        await self.ready()
        return await scopes_of(self)

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────────

    async def preview(
        self,
        action: Action,
        *,
        ids: Sequence[str] = (),
        wanted: ListingFilter | None = None,
        group: str | None = None,
        limit: int = bulk.MAX_TARGETS,
    ) -> Preview:
        """Return what an `action` would change. Nothing changes; pass the preview to `apply`.

        Name the records by their `ids`, by a filter (`wanted`), or by the failure `group` that `failures` returned. At
        most `limit` records are included.
        """
        await self.ready()
        limit = min(limit, bulk.MAX_TARGETS)
        records, now, more = await self._chosen(ids, wanted, group, limit)
        return bulk.make_preview(action, records, now, more=more, encode=self._encode)

    async def apply(self, preview: Preview, *, why: str = "", on_progress: OnProgress | None = None) -> Applied:
        """Change the records of a `preview` that have not changed since. Each change writes an audit entry.

        `on_progress` is called with how many records are done, and their total. Return what was changed, and what was
        refused.
        """
        await self.ready()
        return await bulk.apply(
            self.store,
            preview,
            who=self.who,
            why=why,
            visible=self.visible,
            on_progress=on_progress,
            encode=self._encode,
        )

    async def pause_schedule(self, name: str, *, why: str = "") -> bool:
        """Pause the declared schedule `name`: no runner starts its slots. Return False if it is already paused."""
        await self.ready()
        return await schedules.set_paused(self, name, why, paused=True)

    async def resume_schedule(self, name: str, *, why: str = "") -> bool:
        """Resume the paused schedule `name`. Return False if it is not paused."""
        await self.ready()
        return await schedules.set_paused(self, name, why, paused=False)

    async def run_schedule_now(self, name: str, *, why: str = "") -> str:
        """Ask the runners of the schedule `name` to run it now. Return the id of the run's record."""
        await self.ready()
        return await schedules.run_now(self, name, why)

    async def answer_review(self, one: str, other: str, *, same: bool, seen: Seen = None) -> None:
        """Answer whether the people `one` and `other` are the `same`. Needs `people`. `seen`: see `People.reject`."""
        if self.people is None:
            raise ConfigurationError("there is no database of people", hint="pass people=People(…)")
        people = _sync(self.people)
        await self._in_thread(partial(people.accept if same else people.reject, one, other, who=self.who, seen=seen))

    # ── shared by the modules of this package ───────────────────────────────────────────────────────────────────

    async def group_records(self, group: str, wanted: ListingFilter) -> tuple[list[Record], int]:
        """Return the visible records of a failure group, and the store's time."""
        records, now, _ = await failures.failed_records(self, wanted)
        return [one for one in records if failures.group_id(one) == group], now

    async def _chosen(
        self, ids: Sequence[str], wanted: ListingFilter | None, group: str | None, limit: int
    ) -> tuple[list[Record], int, bool]:
        if sum((bool(ids), wanted is not None, group is not None)) != 1 and not (wanted is not None and group):
            raise ConfigurationError("an action needs ids, a filter or a failure group", hint="pass one of them")
        if group is not None:
            records, now = await self.group_records(group, wanted or EVERYTHING)
            return records[:limit], now, len(records) > limit
        if wanted is not None:
            return await listing.all_visible(self, wanted, limit=limit)
        answers = await self.store.read([details.parsed_id(id) for id in dict.fromkeys(ids)], timeout=TIMEOUT)
        found = [one for one in answers if one.record is not None and self.visible.includes(one.record.scope)]
        records = [one.record for one in found if one.record is not None]
        return records[:limit], answers[0].now, len(records) > limit

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run blocking work in a thread if the client is async, so that it does not block the event loop."""
        return work(*arguments) if self._offload is None else await self._offload(work, *arguments)


def _sync(people: People | AsyncPeople) -> People:
    wrapped: Any = getattr(people, "people", people)  # `AsyncPeople` wraps a `People`
    sync: People = wrapped
    return sync
