"""What the demo says before and after."""

from __future__ import annotations

import re
from collections.abc import Sequence

from examples.demo.systems import Listed
from onceward.testing.storm import Plan, Run
from onceward.testing.storm.colors import BOLD, DIM, RED, Paint

SECRET = re.compile(r"(?<=://).*@|\?.*")
"""What of a URL is for nobody's screen: who it is and the password, and settings, which may have one, too."""


def opening(systems: Sequence[Listed], plan: Plan, paint: Paint) -> str:
    where = SECRET.sub("", plan.store) or "embedded stores"
    how = f"guarded by Onceward, on {where}" if plan.guarded else "WITHOUT Onceward: written as it often is by hand"
    names = max(len(listed.name) for listed in systems)
    shape = f"{plan.workers} processes, SIGKILL and pauses at random; {plan.seconds:.3g} s of events a system"
    return "\n".join(
        [
            paint("Work that is delivered at least once, to workers that die in the middle of it.", BOLD),
            f"Each event comes about {1 + plan.duplicates:g} times, out of order, often to two workers at once;",
            f"{shape}, seed {plan.seed};",
            f"{how}.",
            "",
            *(f"  {listed.name:<{names}}  {paint(listed.does, DIM)}" for listed in systems),
            "",
        ]
    )


def ending(runs: Sequence[Run], plan: Plan, took: float, paint: Paint) -> str:
    if not runs:
        return "\nNo storm could be finished, so nothing is shown."
    failed = [run.system for run in runs if not run.audit.passed]
    if plan.guarded and failed:
        return "\n" + paint(
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
        f"Workers paused until others could take over, and then continued: {total('paused')}.",
        f"Work finished by whoever took over: {total('taken_over')}.",
        "What is counted and not promised, nobody can have once: a worker may die or sleep between the",
        "call and the note of it. Which promise holds where: docs/explain/promises.md.",
        "",
        "Next: make demo ARGS=--unguarded                the same events without Onceward",
        "      make demo ARGS=--seed=2                   other kills",
        f"      {longer:<40}  one for longer; STORE=postgresql://…",
        "      docs/howto/storm.md                       a storm for a handler of your own",
    ]


def _unguarded(runs: Sequence[Run], failed: Sequence[str]) -> list[str]:
    if not failed:
        return ["Nothing went wrong this time, by luck. Try another --seed, or more --seconds."]
    twice = sum(len(run.audit.duplicates) for run in runs)
    missing = sum(len(run.audit.lost) for run in runs)
    wrong = sum(len(run.audit.wrong) for run in runs)
    found = [f"{twice} events had their effect more than once"]
    found += [f"{missing} were lost"] if missing else []
    found += [f"{wrong} ended up wrong"] if wrong else []
    return [
        f"This is the point: without Onceward {', '.join(found)}, although the work looks first.",
        "Two workers can look at the same time, and a dead one leaves no note.",
        "Next: make demo            the same events with Onceward",
    ]
