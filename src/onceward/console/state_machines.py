"""Draw the state machines of a record and of an attempt, with the current state marked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import hypot

from markupsafe import Markup

from onceward.engine.attempt import MOVES

Point = tuple[float, float]
HALF_WIDTH, HALF_HEIGHT = 41, 13
ARROW = 6

RECORD_PLACES: dict[str, Point] = {
    "FREE": (50, 95),
    "PENDING": (190, 95),
    "COMPLETED": (350, 25),
    "FAILED": (350, 95),
    "PARKED": (350, 165),
}
RECORD_MOVES = (
    ("FREE", "PENDING"),
    ("PENDING", "COMPLETED"),
    ("PENDING", "FAILED"),
    ("PENDING", "PARKED"),
    ("FAILED", "PENDING"),
    ("PARKED", "FAILED"),
)
"""The moves that people need to know. The whole table is on the page docs/explain/state-table.md."""

ATTEMPT_PLACES: dict[str, Point] = {
    "new": (50, 25),
    "claiming": (160, 25),
    "waiting": (270, 25),
    "refused": (50, 95),
    "owned": (160, 95),
    "verifying": (270, 95),
    "running": (160, 165),
    "abandoned": (50, 165),
    "settling": (270, 165),
    "settled": (380, 165),
    "lost": (270, 235),
    "unknown": (380, 95),
}
HIDDEN_MOVES = {
    ("new", "refused"), ("new", "abandoned"), ("claiming", "abandoned"), ("waiting", "abandoned"),
    ("verifying", "abandoned"), ("settled", "settling"), ("unknown", "settling"), ("owned", "settling"),
    ("claiming", "unknown"), ("running", "verifying"),
}  # fmt: skip
"""Rare moves, which would only cross the others in the drawing."""


def record_machine(state: str) -> Markup:
    """Draw the states of a record."""
    return _draw("States of the record", RECORD_PLACES, RECORD_MOVES, state, (400, 190))


def attempt_machine(state: str) -> Markup:
    """Draw the states of an attempt."""
    moves = [(start.value, end.value) for start, ends in MOVES.items() for end in sorted(ends)]
    shown = [move for move in moves if move not in HIDDEN_MOVES and set(move) <= set(ATTEMPT_PLACES)]
    return _draw("States of the attempt", ATTEMPT_PLACES, shown, state.lower(), (430, 260))


def _draw(
    title: str, places: Mapping[str, Point], moves: Iterable[tuple[str, str]], here: str, size: tuple[int, int]
) -> Markup:
    label = f"{title}; now {here}" if here else title
    parts = [Markup('<svg class="machine" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(*size, label)]
    parts += [_arrow(places[start], places[end]) for start, end in moves]
    for name, (x, y) in places.items():
        parts.append(
            Markup(
                '<g class="{}"><rect x="{}" y="{}" width="{}" height="{}" rx="7"/><text x="{}" y="{}">{}</text></g>'
            ).format(
                "here" if name == here else "node",
                x - HALF_WIDTH,
                y - HALF_HEIGHT,
                2 * HALF_WIDTH,
                2 * HALF_HEIGHT,
                x,
                y,
                name,
            )
        )
    return Markup("").join([*parts, Markup("</svg>")])


def _arrow(start: Point, end: Point) -> Markup:
    x1, y1 = _border(start, end)
    x2, y2 = _border(end, start)
    length = hypot(x2 - x1, y2 - y1) or 1
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    bx, by = x2 - ARROW * dx, y2 - ARROW * dy
    side = ARROW / 2
    head = f"{x2:.1f},{y2:.1f} {bx - side * dy:.1f},{by + side * dx:.1f} {bx + side * dy:.1f},{by - side * dx:.1f}"
    return Markup(
        '<line class="edge" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/><polygon class="head" points="{}"/>'
    ).format(x1, y1, bx, by, head)


def _border(box: Point, towards: Point) -> Point:
    """Return where the line to the other box leaves this box."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min(HALF_WIDTH / abs(dx) if dx else 9e9, HALF_HEIGHT / abs(dy) if dy else 9e9)
    return box[0] + dx * scale, box[1] + dy * scale
