"""The texts that the demo prints before and after the storms."""

from __future__ import annotations

import re
from collections.abc import Sequence

from examples.demo.systems import DemoSystem
from onceward.testing.storm import Plan, Run
from onceward.testing.storm.terminal import BOLD, DIM, RED, TerminalStyle

SECRET = re.compile(r"(?<=://).*@|\?.*")
"""The parts of a URL that are not shown: user, password, and settings, which may contain a password, too."""


def opening(systems: Sequence[DemoSystem], plan: Plan, style: TerminalStyle) -> str:
    where = SECRET.sub("", plan.store) or "embedded stores"
    how = (
        f"guarded by Onceward, on {where}"
        if plan.guarded
        else "WITHOUT Onceward, as such code is often written by hand"
    )
    names = max(len(entry.name) for entry in systems)
    shape = f"{plan.workers} processes, SIGKILL and pauses at random; {plan.seconds:.3g} s of events per system"
    return "\n".join(
        [
            style("At-least-once delivery, to workers that die in the middle of their work.", BOLD),
            f"Each event is delivered about {1 + plan.duplicates:g} times, out of order, often to two workers at once;",
            f"{shape}, seed {plan.seed};",
            f"{how}.",
            "",
            *(f"  {entry.name:<{names}}  {style(entry.description, DIM)}" for entry in systems),
            "",
        ]
    )


def ending(runs: Sequence[Run], plan: Plan, took: float, style: TerminalStyle) -> str:
    if not runs:
        return "\nNo storm could be finished, so the demo shows nothing."
    failed = [run.system for run in runs if not run.audit.passed]
    if plan.guarded and failed:
        return "\n" + style(
            f"This must not happen: {', '.join(failed)}. Please report it, with the seed and the red lines.", RED, BOLD
        )
    return "\n".join(["", *(_guarded(runs, took) if plan.guarded else _unguarded(runs, failed))])


def _guarded(runs: Sequence[Run], took: float) -> list[str]:
    def total(figure: str) -> int:
        return sum(getattr(run.score, figure) for run in runs)

    longer = f"make demo SYSTEM={runs[0].system} SECONDS=20"
    events, effects = sum(run.events for run in runs), sum(run.audit.effects for run in runs)
    return [
        f"In {took:.0f} s: {events} events, {total('delivered')} deliveries, {effects} effects: none twice, none lost.",
        f"Workers killed: {total('killed')}, {total('redelivered')} of them in the middle of a delivery.",
        f"Workers paused until others could take over, and then resumed: {total('paused')}.",
        f"Work finished by a worker that took over: {total('taken_over')}.",
        'Effects that are "counted, not promised" cannot be exactly once: a worker may die or pause between',
        "the call and its record. Guarantees per kind of effect: docs/explain/promises.md.",
        "",
        "Next: make demo ARGS=--unguarded                the same events without Onceward",
        "      make demo ARGS=--seed=2                   other kills",
        f"      {longer:<40}  one system for longer; STORE=postgresql://…",
        "      docs/howto/storm.md                       a storm for your own handler",
    ]


def _unguarded(runs: Sequence[Run], failed: Sequence[str]) -> list[str]:
    if not failed:
        return ["Nothing went wrong this time, by chance. Try another --seed, or more --seconds."]
    twice = sum(len(run.audit.duplicates) for run in runs)
    missing = sum(len(run.audit.lost) for run in runs)
    wrong = sum(len(run.audit.wrong) for run in runs)
    found = [f"{twice} events had their effect more than once"]
    found += [f"{missing} were lost"] if missing else []
    found += [f"{wrong} ended up wrong"] if wrong else []
    return [
        f"Without Onceward, {', '.join(found)}, although the handler checks first whether the work is done.",
        "Two workers can check at the same time, and a dead worker leaves no record.",
        "Next: make demo            the same events with Onceward",
    ]
