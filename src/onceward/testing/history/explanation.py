"""Explain a counterexample in text: the calls with their times, the answers, and what the state table says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onceward.protocol.record import Record
from onceward.testing.conformance.lookup import LOOKUP_FIELDS

from .counterexample import Counterexample
from .operation import Lookup, Operation, Scan, outcome
from .search import DeadEnd
from .timeline import Contradiction

TIMES = frozenset(
    {"token", "cycle", "created_at", "claimed_at", "updated_at", "renewed_at", "lease_until", "retry_at", "valid_until"}
)
"""Fields with times of the store's clock, and tokens, which start as such times."""

SHOWN_FIELDS = ("token", "nonce", "attempt", "updated_at", "lease_until", "retry_at", "valid_until", "result", "error")
"""Fields that are shown of a record."""

MAX_DISTANCE = 10 * 365 * 24 * 3600 * 1_000_000
"""µs. A value more than ten years away is not shown as a relative time: it is an invented number."""

MAX_HEX_DIGITS = 8
"""Hex digits up to which bytes are shown in full.

Of longer bytes, both ends are shown: in a nonce, one depends on the process, the other on the call.
"""

MAX_DIFFERENCES = 4
"""Maximum number of different fields that are shown."""

MAX_ORDERS = 4
"""Maximum number of attempted orders that are shown."""


class Explainer:
    """Writes times in µs relative to the first one shown, separately for the callers' clock and the store's clock."""

    def __init__(self, found: Counterexample) -> None:
        self._found = found
        case = found.case
        shown = [*case.required, *(candidate.operation for candidate in case.optional)]
        self._operations = sorted(shown, key=lambda one: one.called)
        self._names = {id(one): f"[{number}]" for number, one in enumerate(self._operations, start=1)}
        self._began = min(one.called for one in shown)
        nows = [one.answer.now for one in shown if one.answer is not None and not isinstance(one.request, Lookup)]
        starts = [] if case.start is None else [case.start.updated_at]
        self._zero = min([*nows, *starts], default=0)

    def lines(self, operations: int) -> Iterator[str]:
        """Yield the whole text. `operations` is the size of the key's history."""
        found = self._found
        required = {id(one) for one in found.case.required}
        yield f"{_name(found)}: no order explains these answers."
        yield (
            f"  Seen when {self._names[id(found.culprit)]} returned, answer {found.within} in a history of "
            f"{operations:,} operations. In µs: calls since the first one here, the store's times and tokens since "
            f"{self._zero}."
        )
        shown = "" if found.origin is None else f", as returned by an earlier {found.origin.verb} of {found.origin.by}"
        yield f"  At first there was {self.record(found.case.start)}{shown}."
        for one in self._operations:
            yield f"  {self.operation(one)}" + ("" if id(one) in required else " (may have taken effect or not)")
        for dead_end in self._closest(found.dead_ends):
            yield from self._dead_end_lines(dead_end)

    def _closest(self, dead_ends: list[DeadEnd]) -> list[DeadEnd]:
        """Return the orders that got furthest.

        If an order was tried at several instants, return the closest attempt.
        """
        orders: dict[tuple[int, ...], DeadEnd] = {}
        for one in sorted(dead_ends, key=_distance):
            orders.setdefault(tuple(id(operation) for operation, _ in one.order), one)
        return sorted(orders.values(), key=lambda one: (-len(one.order), _distance(one)))[:MAX_ORDERS]

    def _dead_end_lines(self, dead_end: DeadEnd) -> Iterator[str]:
        order = ", then ".join(
            self._names[id(one)] + (f" at {self.time(now)}" if one.answer is None else "")
            for one, now in dead_end.order
        )
        yield f"  After {order} there is {self.record(dead_end.record)}:" if order else "  From this state:"
        for one in dead_end.left:
            yield f"    {self._names[id(one)]} {self._problem(dead_end.record, one)}"

    def _problem(self, record: Record | None, one: Operation) -> str:
        assert one.answer is not None
        now = one.answer.now
        if record is not None and now < record.updated_at and not isinstance(one.request, Scan | Lookup):
            return f"was processed at {self.time(now)}, before the record was written"
        after, verdict = outcome(record, one.request, now)
        if verdict is not one.answer.verdict:
            return f"should return {verdict}, not {one.answer.verdict}"
        return f"should contain {self.differences(after, one.answer.record, _names(one))}"

    def operation(self, one: Operation) -> str:
        called, returned = self._span(one.called), "…" if one.returned is None else self._span(one.returned)
        text = f"{self._names[id(one)]} {one.by}: {one.verb}{self._request_details(one)}, {called} to {returned} µs"
        if one.answer is None:
            return f"{text}: {one.error or 'no answer'}"
        at = "" if isinstance(one.request, Lookup) else f" at {self.time(one.answer.now)}"
        return f"{text}: {one.answer.verdict}{at}, {self.record(one.answer.record)}"

    def _request_details(self, one: Operation) -> str:
        """Return the token, nonce, lease and force of the request."""
        request = one.request
        names = [name for name in ("token", "token_seen", "nonce", "lease", "force") if hasattr(request, name)]
        details = ", ".join(f"{name} {self._value(name, getattr(request, name))}" for name in names)
        return f" ({details})" if details else ""

    def record(self, record: Record | None) -> str:
        if record is None:
            return "no record"
        shown = [name for name in SHOWN_FIELDS if getattr(record, name) not in (None, "")]
        return f"{record.state} " + ", ".join(f"{name} {self._value(name, getattr(record, name))}" for name in shown)

    def differences(self, wanted: Record | None, seen: Record | None, among: Iterable[str]) -> str:
        if wanted is None or seen is None:
            return f"{self.record(wanted)}, not {self.record(seen)}"
        names = [name for name in among if getattr(wanted, name) != getattr(seen, name)]
        shown = [
            f"{name} {self._value(name, getattr(wanted, name))}, not {self._value(name, getattr(seen, name))}"
            for name in names[:MAX_DIFFERENCES]
        ]
        return "; ".join(shown) + (f"; and {len(names) - MAX_DIFFERENCES} more" if len(names) > MAX_DIFFERENCES else "")

    def time(self, now: int) -> str:
        return f"{now - self._zero:,}" if abs(now - self._zero) < MAX_DISTANCE else f"({now})"

    def _span(self, instant: int) -> str:
        return f"{(instant - self._began) / 1_000:,.0f}"

    def _value(self, name: str, value: object) -> str:
        if isinstance(value, int) and (name in TIMES or name == "token_seen"):
            return self.time(value)
        if isinstance(value, bytes):
            text = value.hex()
            return text or "empty" if len(text) <= MAX_HEX_DIGITS else f"{text[:4]}…{text[-4:]}"
        if isinstance(value, str):
            return f"{str(value)!r:.60}" if name != "state" else str(value)
        return f"{value:,}" if type(value) is int else f"{value!r:.60}"


def explain_clock(found: Contradiction) -> str:
    earlier, later = found
    assert earlier.answer is not None
    assert later.answer is not None
    return (
        f"The store's clock went back by {earlier.answer.now - later.answer.now:,} µs: {earlier.by} got an answer of "
        f"{earlier.answer.now}; after that {later.by} sent a {later.verb}, which was processed at {later.answer.now}."
    )


def _name(found: Counterexample) -> str:
    case = found.case
    records = [case.start, *(one.answer.record for one in case.required if one.answer is not None)]
    named = next((record for record in records if record is not None), None)
    id = found.culprit.id.hex()[:12]
    return f"{named.key!r} of scope {named.scope!r} (id {id}…)" if named is not None else f"id {id}…"


def _distance(dead_end: DeadEnd) -> int:
    """Return how much the closest answer differs from what the state table says."""
    return min((_mismatch(dead_end.record, one) for one in dead_end.left), default=0)


def _mismatch(record: Record | None, one: Operation) -> int:
    assert one.answer is not None
    after, verdict = outcome(record, one.request, one.answer.now)
    seen = one.answer.record
    if verdict is not one.answer.verdict or after is None or seen is None:
        return len(Record.__struct_fields__)
    return sum(getattr(after, name) != getattr(seen, name) for name in _names(one))


def _names(one: Operation) -> Iterable[str]:
    """Return the fields that this operation's answer shows."""
    return LOOKUP_FIELDS if isinstance(one.request, Lookup) else Record.__struct_fields__
