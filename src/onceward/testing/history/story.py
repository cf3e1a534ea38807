"""A counterexample as a person reads it: who asked what when, what was answered, and what the state table says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onceward.protocol.record import Record

from .counterexample import Counterexample
from .operation import SHOWN, Lookup, Operation, Scan, outcome
from .search import DeadEnd
from .timeline import Contradiction

TIMES = frozenset(
    {"token", "cycle", "created_at", "claimed_at", "updated_at", "renewed_at", "lease_until", "retry_at", "valid_until"}
)
"""Fields that are times of the store's clock, and tokens, which begin as such."""

TOLD = ("token", "nonce", "attempt", "updated_at", "lease_until", "retry_at", "valid_until", "result", "error")
"""What a reader wants to see of a record that is not at issue."""

FAR = 10 * 365 * 24 * 3600 * 1_000_000
"""µs: a time that is ten years off is none, but a number that somebody made up."""

SHORT = 8
"""Digits of bytes told in full. Of nonces, both ends differ: one by the process, the other by the call."""

DIFFERENCES = 4
"""Fields told of a record that is another one altogether."""

ORDERS = 4
"""More orders than these say nothing new."""


class Teller:
    """Tells times from the first that matters here, in µs: those of the callers' clock, and those of the store's."""

    def __init__(self, found: Counterexample) -> None:
        self._found = found
        case = found.case
        told = [*case.required, *(maybe.operation for maybe in case.optional)]
        self._told = sorted(told, key=lambda one: one.called)
        self._names = {id(one): f"[{number}]" for number, one in enumerate(self._told, start=1)}
        self._began = min(one.called for one in told)
        nows = [one.answer.now for one in told if one.answer is not None and not isinstance(one.request, Lookup)]
        starts = [] if case.start is None else [case.start.updated_at]
        self._zero = min([*nows, *starts], default=0)

    def tell(self, operations: int) -> Iterator[str]:
        found = self._found
        required = {id(one) for one in found.case.required}
        yield f"{_name(found)}: no order explains these answers."
        yield (
            f"  Seen when {self._names[id(found.culprit)]} returned, answer {found.within} in a history of "
            f"{operations:,} operations. In µs: calls since the first one here, the store's times and tokens since "
            f"{self._zero}."
        )
        shown = "" if found.origin is None else f", as {found.origin.by}'s {found.origin.verb} was shown before"
        yield f"  There was {self.record(found.case.start)}{shown}."
        for one in self._told:
            yield f"  {self.operation(one)}" + ("" if id(one) in required else " (may count, or not)")
        for dead_end in self._closest(found.dead_ends):
            yield from self._stuck(dead_end)

    def _closest(self, dead_ends: list[DeadEnd]) -> list[DeadEnd]:
        """The orders that got furthest; where one was tried at several instants, that which came closest."""
        orders: dict[tuple[int, ...], DeadEnd] = {}
        for one in sorted(dead_ends, key=_distance):
            orders.setdefault(tuple(id(operation) for operation, _ in one.order), one)
        return sorted(orders.values(), key=lambda one: (-len(one.order), _distance(one)))[:ORDERS]

    def _stuck(self, dead_end: DeadEnd) -> Iterator[str]:
        order = ", then ".join(self._placed(one, now) for one, now in dead_end.order)
        yield f"  With {order} there is {self.record(dead_end.record)}:" if order else "  Beginning with that:"
        for one in dead_end.left:
            yield f"    {self._names[id(one)]} {self._wrong(dead_end.record, one)}"

    def _placed(self, one: Operation, now: int) -> str:
        return self._names[id(one)] + (f" at {self.time(now)}" if one.answer is None else "")

    def _wrong(self, record: Record | None, one: Operation) -> str:
        assert one.answer is not None
        now = one.answer.now
        if record is not None and now < record.updated_at and not isinstance(one.request, Scan | Lookup):
            return f"was judged at {self.time(now)}, before the record was written"
        after, verdict = outcome(record, one.request, now)
        if verdict is not one.answer.verdict:
            return f"had to be answered {verdict}, not {one.answer.verdict}"
        return f"had to be shown {self.differences(after, one.answer.record, _names(one))}"

    def operation(self, one: Operation) -> str:
        called, returned = self._span(one.called), "…" if one.returned is None else self._span(one.returned)
        said = f"{self._names[id(one)]} {one.by}: {one.verb}{self._asked(one)}, {called} to {returned} µs"
        if one.answer is None:
            return f"{said}: {one.error or 'no answer'}"
        at = "" if isinstance(one.request, Lookup) else f" at {self.time(one.answer.now)}"
        return f"{said}: {one.answer.verdict}{at}, {self.record(one.answer.record)}"

    def _asked(self, one: Operation) -> str:
        """Whose request it is, and for how long."""
        request = one.request
        names = [name for name in ("token", "token_seen", "nonce", "lease", "force") if hasattr(request, name)]
        return (
            " (" + ", ".join(f"{name} {self._value(name, getattr(request, name))}" for name in names) + ")"
            if names
            else ""
        )

    def record(self, record: Record | None) -> str:
        if record is None:
            return "no record"
        told = [name for name in TOLD if getattr(record, name) not in (None, "")]
        return f"{record.state} " + ", ".join(f"{name} {self._value(name, getattr(record, name))}" for name in told)

    def differences(self, wanted: Record | None, seen: Record | None, among: Iterable[str]) -> str:
        if wanted is None or seen is None:
            return f"{self.record(wanted)}, not {self.record(seen)}"
        names = [name for name in among if getattr(wanted, name) != getattr(seen, name)]
        told = [
            f"{name} {self._value(name, getattr(wanted, name))}, not {self._value(name, getattr(seen, name))}"
            for name in names[:DIFFERENCES]
        ]
        return "; ".join(told) + (f"; and {len(names) - DIFFERENCES} more" if len(names) > DIFFERENCES else "")

    def time(self, now: int) -> str:
        return f"{now - self._zero:,}" if abs(now - self._zero) < FAR else f"({now})"

    def _span(self, instant: int) -> str:
        return f"{(instant - self._began) / 1_000:,.0f}"

    def _value(self, name: str, value: object) -> str:
        if isinstance(value, int) and (name in TIMES or name == "token_seen"):
            return self.time(value)
        if isinstance(value, bytes):
            text = value.hex()
            return text or "empty" if len(text) <= SHORT else f"{text[:4]}…{text[-4:]}"
        if isinstance(value, str):
            return f"{str(value)!r:.60}" if name != "state" else str(value)
        return f"{value:,}" if type(value) is int else f"{value!r:.60}"


def story(found: Counterexample, operations: int) -> str:
    """The whole text; `operations` is the size of the key's history."""
    return "\n".join(Teller(found).tell(operations))


def story_of_the_clock(found: Contradiction) -> str:
    earlier, later = found
    assert earlier.answer is not None
    assert later.answer is not None
    return (
        f"The store's clock went back by {earlier.answer.now - later.answer.now:,} µs: {earlier.by} got an answer of "
        f"{earlier.answer.now}; after that {later.by} sent a {later.verb}, which was judged by {later.answer.now}."
    )


def _name(found: Counterexample) -> str:
    case = found.case
    records = [case.start, *(one.answer.record for one in case.required if one.answer is not None)]
    named = next((record for record in records if record is not None), None)
    id = found.culprit.id.hex()[:12]
    return f"{named.key!r} of scope {named.scope!r} (id {id}…)" if named is not None else f"id {id}…"


def _distance(dead_end: DeadEnd) -> int:
    """How far the answer that came closest was from what the table says."""
    return min((_mismatch(dead_end.record, one) for one in dead_end.left), default=0)


def _mismatch(record: Record | None, one: Operation) -> int:
    assert one.answer is not None
    after, verdict = outcome(record, one.request, one.answer.now)
    seen = one.answer.record
    if verdict is not one.answer.verdict or after is None or seen is None:
        return len(Record.__struct_fields__)
    return sum(getattr(after, name) != getattr(seen, name) for name in _names(one))


def _names(one: Operation) -> Iterable[str]:
    """The fields that this operation's answer shows."""
    return SHOWN if isinstance(one.request, Lookup) else Record.__struct_fields__
