"""Erase everything that names a key, or all keys of a tenant, scope or prefix. The default is a preview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import ConfigurationError, StoreBroken
from onceward.keys.key import Scope
from onceward.keys.readable import MAX_TEXT, escape
from onceward.observe.record_figures import scan_pages
from onceward.protocol.audit import AuditSignature, signature
from onceward.protocol.capabilities import Erasure
from onceward.protocol.counters import CounterRow, Counts, operation_of
from onceward.protocol.erasure import ErasureFilter, FoundEntity
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import Record
from onceward.protocol.requests import ExpectedRecord, Verdict

from .audit_identity import user_and_host

T = TypeVar("T")

TIMEOUT: Final = 60.0
"""Seconds for each call, which may visit all records."""

DISCARD_TIMEOUT: Final = 2.0
"""Seconds for truncating a log: on SQLite, other writers wait for it."""

SAMPLE: Final = 10
"""How many keys a preview shows."""

MAX_PREFIX: Final = MAX_TEXT - 9
"""Longer keys are displayed truncated, so a longer prefix would not find them."""

OnProgress = Callable[[int, int], None]
"""Called with the number of records that were visited, and the number that the preview found."""


class Erased(Struct, frozen=True, kw_only=True):
    """What an erasure deleted, or would delete: `done` says which.

    - `records`: the number of records. `scopes`: the same by scope. `sample`: some of their keys.
    - `kept`: records that were not deleted, because a worker holds their lease, or because they changed meanwhile.
    - `entities`: latest states. `audit_entries`: audit entries that lose their key.
    - `counter_rows`: rows of counters that lose the name of a tenant.
    - `unreadable`: the keys or ids of records and latest states with invalid content. They are kept.
    - `remains`: which deleted content is still in a file of the store, and what to do. Empty if there is none.
    """

    done: bool
    records: int
    scopes: Mapping[str, int]
    sample: tuple[str, ...]
    kept: int = 0
    entities: int = 0
    audit_entries: int = 0
    counter_rows: int = 0
    unreadable: tuple[str, ...] = ()
    remains: str = ""


def erasure_filter(tenant: str | None, scope: str | None, prefix: str | None, key: str | None = None) -> ErasureFilter:
    """Return the validated filter. Texts are converted to the form in which scopes and keys are displayed."""
    options = {"tenant": tenant, "scope": scope, "prefix": prefix, "key": key}
    if all(value is None for value in options.values()):
        raise ConfigurationError("nothing was selected to erase", hint="pass a tenant, a scope, a key or a key prefix")
    if prefix is not None and key is not None:
        raise ConfigurationError("both a key and a key prefix were selected to erase", hint="pass only one of them")
    for name, value in options.items():
        if value is not None and (not isinstance(value, str) or not value):
            raise ConfigurationError(f"the {name} to erase must be a text, not {value!r}", hint=f'{name}="…"')
    if scope is not None and "/" not in scope:
        raise ConfigurationError(f"{scope!r} is not a scope", hint="a scope is app/operation, or app/operation@tenant")
    if tenant is not None and scope is not None and "@" in scope:
        raise ConfigurationError(f"the scope {scope!r} already names a tenant", hint="leave the tenant out")
    if tenant is not None and scope is not None:
        scope = f"{scope}@{_tenant_text(tenant)}"
    shown = None if prefix is None else escape(prefix)
    if shown is not None and len(shown) > MAX_PREFIX:
        raise ConfigurationError(
            f"a prefix of {len(shown)} characters is too long", hint=f"use at most {MAX_PREFIX} characters"
        )
    exact = None if key is None else escape(key)
    if exact is not None and len(exact) > MAX_TEXT:
        raise ConfigurationError(
            f"a key of {len(exact)} characters is displayed truncated", hint="pass it as `onceward ls` displays it"
        )
    return ErasureFilter(None if tenant is None else _tenant_text(tenant), scope, shown, exact)


def erase_signature(wanted: ErasureFilter, why: str) -> AuditSignature:
    """Return the signature of the audit entry. It names the kind of filter, but not the tenant, prefix or key."""
    by = [name for name in ("tenant", "prefix", "key") if getattr(wanted, name) is not None]
    if wanted.scope is not None:
        by.append(f"scope {operation_of(wanted.scope)}")
    return signature("erase", user_and_host(), why, f"by {' and '.join(by)}")


def _tenant_text(tenant: str) -> str:
    return Scope("a", "o", tenant).text.partition("@")[2]


async def erase(
    store: Store,
    wanted: ErasureFilter,
    signed: AuditSignature,
    *,
    dry_run: bool = True,
    on_progress: OnProgress = lambda _done, _total: None,
) -> Erased:
    """Erase matching data. The audit entry is written first, so that every erasure has one.

    It can be repeated: the next call deletes what an interrupted call left. If a step raises StoreBroken, the others
    are executed before the error is raised. It names the parts that may still contain erased keys.
    """
    erasure = store.erasure
    if erasure is None:
        raise ConfigurationError(f"{store.name} cannot erase records", hint="its class lacks the capability `erasure`")
    known = {scope for scope, _ in await store.counts(timeout=TIMEOUT)}
    scopes = [scope for scope in sorted(known) if wanted.selects_scope(scope)]
    steps = _Steps()
    entities = await steps.attempt("latest states", erasure.find_entities(wanted, timeout=TIMEOUT), [])
    found = await _preview(store, wanted, scopes, entities)
    if dry_run:
        steps.raise_first()
        return replace(
            found,
            audit_entries=await erasure.redact_audit(wanted, timeout=TIMEOUT, dry_run=True),
            counter_rows=await _erase_counts(store, wanted, dry_run=True),
        )
    await erasure.add_audit(signed, found.records, timeout=TIMEOUT)
    counter_rows = await steps.attempt("counters", _erase_counts(store, wanted), 0)
    visited = kept = 0
    for scope in scopes:
        async for page in scan_pages(store, Filter(scope=scope, key=wanted.key, prefix=wanted.prefix), TIMEOUT):
            kept += await steps.attempt("records", _erase_records(store, erasure, page.records), len(page.records))
            visited += len(page.records)
            on_progress(visited, found.records)
    readable = [one for one in entities if one.readable]
    done = replace(
        found,
        done=True,
        records=visited - kept,
        kept=kept,
        entities=await steps.attempt("latest states", erasure.delete_entities(readable, timeout=TIMEOUT), 0),
        audit_entries=await steps.attempt("audit entries", erasure.redact_audit(wanted, timeout=TIMEOUT), 0),
        counter_rows=counter_rows,
        remains=await erasure.discard_deleted(timeout=DISCARD_TIMEOUT),
    )
    steps.raise_incomplete(done)
    return done


class _Steps:
    """The steps of an erasure. If one raises StoreBroken, the others are still executed."""

    def __init__(self) -> None:
        self._errors: dict[str, StoreBroken] = {}

    async def attempt(self, part: str, step: Awaitable[T], default: T) -> T:
        try:
            return await step
        except StoreBroken as error:
            self._errors.setdefault(part, error)
            return default

    def raise_first(self) -> None:
        for error in self._errors.values():
            raise error

    def raise_incomplete(self, done: Erased) -> None:
        for error in self._errors.values():
            also = [f"records kept: {done.kept}"] if done.kept else []
            also += [done.remains] if done.remains else []
            raise StoreBroken(
                "; ".join(
                    [f"the erasure is incomplete: {error}. Erased keys may remain in: {', '.join(self._errors)}", *also]
                ),
                hint="repair or delete the damaged content, then erase again",
            ) from error


async def _preview(store: Store, wanted: ErasureFilter, scopes: list[str], entities: Sequence[FoundEntity]) -> Erased:
    counted: Counter[str] = Counter()
    sample: list[str] = []
    unreadable = {f"id:{one.id.hex()}": None for one in entities if not one.readable}
    for scope in scopes:
        async for page in scan_pages(store, Filter(scope=scope, key=wanted.key, prefix=wanted.prefix), TIMEOUT):
            counted[scope] += len(page.records)
            sample += [record.key for record in page.records[: SAMPLE - len(sample)]]
            unreadable.update(dict.fromkeys(page.unreadable))
    return Erased(
        done=False,
        records=counted.total(),
        scopes=dict(+counted),
        sample=tuple(sample),
        entities=sum(one.readable for one in entities),
        unreadable=tuple(unreadable),
    )


async def _erase_records(store: Store, erasure: Erasure, records: list[Record]) -> int:
    """Free the records, then delete them. Return how many were kept: their owners are alive, or they have changed."""
    if not records:
        return 0
    seen = {record.id: ExpectedRecord(record.token, record.state) for record in records}
    answers = await store.forget(list(seen), force=False, timeout=TIMEOUT, seen=seen)
    freed = [record for record, answer in zip(records, answers, strict=True) if answer.verdict is Verdict.OK]
    deleted = await erasure.delete_free(freed, timeout=TIMEOUT)
    return len(records) - deleted


async def _erase_counts(store: Store, wanted: ErasureFilter, *, dry_run: bool = False) -> int:
    """Add the counts of erased tenants to those of their operations. Operations are kept: they name no tenant.

    Return how many rows were changed, or would be.
    """
    if store.counters is None:
        return 0
    counted = await store.counters.read_counts(0, timeout=TIMEOUT)
    changed = [
        CounterRow(row.process, row.hour, row.number + 1, without)
        for row in counted.counter_rows
        if (without := _without_tenants(row.counts, wanted)) != row.counts
    ]
    if changed and not dry_run:
        await store.counters.save_counts(changed, timeout=TIMEOUT)
    return len(changed)


def _without_tenants(counts: Counts, wanted: ErasureFilter) -> Counts:
    if wanted.prefix is not None or wanted.key is not None:
        return counts
    result: Counts = {}
    for scope, numbers in counts.items():
        name = operation_of(scope) if wanted.selects_scope(scope) else scope
        cell = result.setdefault(name, {})
        for counter, number in numbers.items():
            cell[counter] = cell.get(counter, 0) + number
    return result
