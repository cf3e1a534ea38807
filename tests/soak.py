"""The long, random tests: `python -m tests.soak [--small] [--minutes N] [--seconds N] [--into FOLDER]`.

Thousands of new random examples for every property, random histories for every store, kills at every call and again
in the recovery, every order of a race, storms again and again with other seeds, and recorded histories of real runs.
The report has the commit, the command and the figures of this run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from examples.demo.systems import SYSTEMS
from onceward.testing.storm import Plan
from tests.chaos.barrage import barrage
from tests.chaos.calendar import AUTUMN, YEAR, as_json, complaints, simulated
from tests.chaos.saga_simulation import SCENARIOS, saga_simulation_client, verified
from tests.chaos.saga_steps import Wrong
from tests.chaos.test_redis_kill import disturbed_run
from tests.evidence import histories
from tests.evidence.races import RACES
from tests.evidence.schedules import BOUND, explore
from tests.imports.large import large
from tests.learning.large import large as backlog
from tests.people_acceptance import figures as people_figures
from tests.proof import report as model
from tests.soak_load import under_load
from tests.soak_section import Section
from tests.soak_storms import STORES, stormed, storms

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "docs" / "evidence"
A_TEST = 6 * 3600  # seconds: five thousand examples take long
SEED = 1_000  # the first seed of a storm; the usual runs have small ones
A_STORM = 60.0  # seconds of new events in one storm of a system
MOST_ORDERS = 5_000  # of one race, about ten minutes
THREE_ENDINGS = 3  # one for each of the three that race

PROPERTIES = ("-m", "hypothesis", "--hypothesis-show-statistics", "tests")
HISTORIES = (
    "-k",
    "random_histories",
    "tests/conformance/test_memory.py",
    "tests/conformance/test_sqlite.py",
    "tests/conformance/test_redis.py",
)
ON_A_SERVER = ("-k", "valkey", "tests/integration", "tests/unit", "tests/endpoints")
"""Tests of the sync and async clients on a server: the usual run has them on memory and SQLite."""
NEAR = "firestore and not fifty_thousand and not ten_calls"  # these two need a store in the process
ON_FIRESTORE = ("-k", NEAR, "tests/integration", "tests/unit", "tests/endpoints", "tests/conformance")
"""The same on Google's emulator, with longer histories in the kit."""
QUEUES = ("tests/queues/test_storm.py", "tests/queues/test_cloud.py")
ENDPOINTS = ("tests/http/test_transactional_crashes.py",)
"""Every framework on PostgreSQL and SQLite, killed at every point; and PostgreSQL restarted under load."""
SITE = ("tests/docs/test_site_in_browser.py",)
COUNTERS = ("tests/chaos/test_counters.py",)
SERVICES = ("tests/services/test_killed_services.py",)
DJANGO = tuple(f"tests/integration/test_django_{name}.py" for name in ("killed", "celery", "adoption", "gevent"))
PEOPLE = ("tests/integration/test_people_link.py", "tests/integration/test_people_order.py")
"""On Spark, which is installed by `make soak` only."""
ON_POSTGRESQL = ("-k", "random_histories or postgres_workers", "tests/conformance/test_postgres.py", "tests/chaos")


def suite(title: str, arguments: tuple[str, ...], profile: str, **settings: str) -> Section:
    """Run a part of the test suite under a profile of Hypothesis, with these environment variables."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", f"--timeout={A_TEST}", *arguments]
    settings = {"ONCEWARD_HYPOTHESIS_PROFILE": profile, **settings}
    environment = {**os.environ, **settings}
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    figures = [*pytest_figures(done.stdout), ("seconds", round(time.monotonic() - started))]
    variables = " ".join(f"{name}={value}" for name, value in settings.items())
    shown = f"{variables} python {shlex.join(command[1:])}"
    return Section(title, shown, done.returncode == 0, figures)


def pytest_figures(said: str) -> list[tuple[str, object]]:
    """Return what pytest and Hypothesis counted."""
    closing = re.findall(r"^(?:=+ )?((?:\d+ \w+,? ?)+) in [\d.]+s", said, re.MULTILINE)
    counted = re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", closing[-1] if closing else "")
    figures: list[tuple[str, object]] = [(f"tests {word}", int(number)) for number, word in counted]
    examples = [int(number) for number in re.findall(r"- (\d+) passing, ", said)]
    return [*figures, ("random examples passed", sum(examples))] if examples else figures


def recorded_histories(*, small: bool, minutes: float) -> Section:
    """Record real concurrent runs and check each history for an order; then hunt the planted bugs."""
    seconds = 1.0 if small else 60 * minutes
    done = histories.soak(seconds, SEED, size=1.0 if small else histories.SIZE)
    print(*done.without_an_order, *done.missed, sep="\n", file=sys.stderr, end="\n" if not done.passed else "")
    figures: list[tuple[str, object]] = [(what, round(done.total[what])) for what in histories.FIGURES]
    figures += [
        ("histories without an order", len(done.without_an_order)),
        ("planted bugs", len(done.hunts)),
        ("planted bugs not found", len(done.missed)),
    ]
    command = f"python -m tests.evidence.histories --seconds {seconds:g} --seed {SEED}"
    return Section("Recorded histories", command, done.passed, figures)


def people(*, small: bool) -> Section:
    """Compare the figures of people with the limits of the acceptance criteria."""
    started = time.monotonic()
    measured = []
    for one in people_figures(small=small):
        print(f"  {one.what}: {one.value}", flush=True)
        measured.append(one)
    command = "python -m tests.people_acceptance" + (" --small" if small else "")
    figures: list[tuple[str, object]] = [(one.what, one.value) for one in measured]
    figures.append(("seconds", round(time.monotonic() - started)))
    return Section("People: data sets, towns and shuffles", command, all(one.passed for one in measured), figures)


def modelled(*, deep: bool) -> Section:
    """Check the model of the protocol with larger bounds."""
    started = time.monotonic()
    done = model.run(deep=deep, write_line=lambda line: print(f"  {line}", flush=True))
    command = "python -m tests.proof" + (" --deep" if deep else "")
    figures = [*done.figures, ("seconds", round(time.monotonic() - started))]
    return Section("The protocol as a model", command, done.holds, figures)


def kills(*, small: bool, minutes: float) -> Section:
    """SIGKILL at every call on the files, then at random in the processes that follow."""
    report = barrage(small=small, minutes=minutes, seed=SEED)
    print(*report.wrong, sep="\n", file=sys.stderr, end="\n" if report.wrong else "")
    options = "--small" if small else f"--minutes {minutes:g}"
    figures: list[tuple[str, object]] = [*sorted(report.counts.items()), ("violations", len(report.wrong))]
    return Section(
        "Killed at every call", f"python -m tests.chaos.barrage {options} --seed {SEED}", not report.wrong, figures
    )


def killed_server(*, small: bool) -> Section:
    """Eight workers on a Redis that is killed, restarted and paused while they work."""
    size = {"keys": 80, "kills": 1, "pauses": 1} if small else {"keys": 4_000, "kills": 20, "pauses": 10}
    wrong = ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            disturbed_run(Path(folder), **size)
        except AssertionError as error:
            wrong = str(error)
            print(wrong, file=sys.stderr)
    figures: list[tuple[str, object]] = [*size.items(), ("violations", int(bool(wrong)))]
    return Section("A server killed while its workers run", "tests/chaos/test_redis_kill.py", not wrong, figures)


def queues(profile: str, messages: str, kills: str) -> Section:
    """Messages through every broker, 30 % of them duplicates, while workers and the broker are killed."""
    size = {"ONCEWARD_STORM_MESSAGES": messages, "ONCEWARD_STORM_KILLS": kills}
    return suite("Queues, their workers and brokers killed", QUEUES, profile, **size)


def console(profile: str, *, small: bool) -> Section:
    """Open every page of the console on the records of the storms of all systems, in a real browser."""
    systems = " ".join(entry.name for entry in SYSTEMS[: 1 if small else None])
    size = {"ONCEWARD_CONSOLE_STORMS": systems, "ONCEWARD_CONSOLE_SECONDS": "1" if small else "20"}
    return suite("The console in a browser", ("tests/console",), profile, **size)


def schedules(*, small: bool) -> Section:
    """Every order of the steps of each race, and the same search on stores that are broken."""
    bound = 1 if small else BOUND
    figures: list[tuple[str, object]] = []
    passed = True
    for race in ("completes",) if small else RACES:
        found = explore(race, bound=bound, most=MOST_ORDERS)
        figures.append((f"orders, the third one {race}{'' if found.all else ' (there are more)'}", found.orders))
        figures += [(f"… {ending}", count) for ending, count in sorted(found.endings.items())]
        broken = explore(race, "GetThenPut", bound=bound)
        figures.append(("… until the planted get-then-put is found", broken.orders))
        good = found.orders > 0 and len(found.endings) == THREE_ENDINGS and not found.broken
        if not good:
            print(race, found, file=sys.stderr)
        passed = passed and good and "Race condition found" in broken.broken
    return Section("Every order of a race", f"python -m tests.evidence.schedules RACE --bound {bound}", passed, figures)


def sagas(*, small: bool) -> Section:
    """Kill every scenario at every point, and again at every point of the next process."""
    figures: list[tuple[str, object]] = []
    wrong = ""
    with saga_simulation_client() as simulation:
        for name, scenario in list(SCENARIOS.items())[: 1 if small else None]:
            patient = replace(scenario, attempts=9)  # two crashes and a failure: together the usual three
            for how, tested in (("done again", patient), ("looked up", verified(patient))):
                try:
                    ends = simulation.kill_everywhere(tested, twice=not small)
                except (AssertionError, Wrong) as error:
                    wrong = f"{name}, {how}: {error}"
                    print(wrong, file=sys.stderr)
                    break
                figures += [(f"{name}, {how}: {state}", number) for state, number in sorted(ends.items())]
    figures.append(("violations", int(bool(wrong))))
    return Section("Sagas killed twice", "tests/chaos/test_saga_crashes.py", not wrong, figures)


def runners(*, small: bool) -> Section:
    """Run ten schedule runners through a year, all awake at every slot, one killed every other day."""
    plan = AUTUMN if small else replace(YEAR, awake=YEAR.runners, deaths=tuple(range(7, 8_700, 48)))
    started = time.monotonic()
    done = simulated(plan, timeout=A_TEST)
    wrong = complaints(plan, done)
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    figures: list[tuple[str, object]] = [
        ("runs", sum(map(len, done.runs.values()))),
        ("runners killed", done.killed),
        ("slots not run once", len(wrong)),
        ("seconds", round(time.monotonic() - started)),
    ]
    return Section("Schedules", f"python -m tests.chaos.year '{as_json(plan)}'", not wrong, figures)


def large_import(*, small: bool) -> Section:
    """Import a million rows in constant memory with kills; then kill the importer at every statement."""
    rows, deaths = (2_000, 1) if small else (1_000_000, 9)
    done = large(rows, deaths)
    figures: list[tuple[str, object]] = [(name.replace("_", " "), figure) for name, figure in done._asdict().items()]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.imports.victims", folder, "7" if small else "1"]
        victims = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    figures += [("at each statement", (victims.stdout.strip().splitlines() or [victims.stderr])[-1])]
    print(*done.wrong, sep="\n", file=sys.stderr, end="\n" if done.wrong else "")
    passed = not done.wrong and victims.returncode == 0
    return Section("A large import", f"python -m tests.imports.large {rows} {deaths}", passed, figures)


def statements(*, small: bool) -> Section:
    """Consume a backlog from a real queue into DuckDB, with kills of the consumer."""
    return drained("A backlog of statements", *((2_000, 1, 50) if small else (200_000, 4, 2_000)))


def more_statements(*, small: bool) -> Section:
    """Consume four times as many with one consumer, to check its memory."""
    return drained("A long backlog of statements", *((2_000, 0, 50) if small else (800_000, 0, 2_000)))


def drained(title: str, messages: int, deaths: int, largest: int) -> Section:
    done = backlog(messages, deaths, largest)
    figures: list[tuple[str, object]] = [(name.replace("_", " "), figure) for name, figure in done._asdict().items()]
    print(*done.wrong, sep="\n", file=sys.stderr, end="\n" if done.wrong else "")
    return Section(title, f"python -m tests.learning.large {messages} {deaths}", not done.wrong, figures)


def commit() -> str:
    """Return the commit that is checked out, with `-changed` if the folder has uncommitted changes."""
    name = _git("rev-parse", "--short=12", "HEAD").strip() or "unknown"
    return f"{name}-changed" if _git("status", "--porcelain", "--untracked-files=no").strip() else name


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def _in_a_name(words: str) -> str:
    """Return a suffix such as `-storm-of-fleet`: the report of a part does not replace that of the whole."""
    return "".join(f"-{word}" for word in re.findall(r"\w+", words.lower()))


def report(sections: list[Section], name: str, command: str) -> str:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    lines = [
        f"# Soak of {name}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {versions}, {machine}.",
        f"Written by `{command}`; the figures are those of that run.",
        "",
        f"Result: **{'passed' if all(one.passed for one in sections) else 'FAILED'}**",
    ]
    for one in sections:
        lines += ["", f"## {one.title}: {'passed' if one.passed else 'FAILED'}", "", f"`{one.command}`", ""]
        lines += ["| | |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in one.figures)]
    return "\n".join(lines) + "\n"


class Chosen(argparse.Namespace):
    """The parsed options."""

    small: bool
    minutes: float
    seconds: float
    only: str
    into: Path | None


def parts(small: bool, minutes: float, seconds: float = A_STORM) -> dict[str, Callable[[], Section]]:
    """Return every part of a soak by its name."""
    profile = "ci" if small else "soak"
    plan = Plan(deliveries=300, workers=3, seed=SEED) if small else Plan(deliveries=20_000, kills=120, seed=SEED)
    of_a_system = Plan(deliveries=100, workers=2, kills=2, seed=SEED) if small else Plan(seconds=seconds, seed=SEED)
    suites = {
        "Properties": PROPERTIES,
        "Random histories of every store": HISTORIES,
        "PostgreSQL: histories, and eight workers through kills and pauses": ON_POSTGRESQL,
        "Counters of eight processes that are killed, on every store": COUNTERS,
        "People in any order, and in one batch on DuckDB and Spark": PEOPLE,
    }
    return {
        **{title: partial(suite, title, tests, profile) for title, tests in suites.items()},
        "Killed at every call": partial(kills, small=small, minutes=minutes / 2),
        "Every promise on a server": partial(
            suite, "Every promise on a server", ON_A_SERVER, profile, ONCEWARD_TEST_BACKENDS="valkey"
        ),
        "Every promise on Firestore": partial(
            suite, "Every promise on Firestore", ON_FIRESTORE, profile, ONCEWARD_TEST_BACKENDS="firestore"
        ),
        "Transactional endpoints": partial(
            suite, "Transactional endpoints", ENDPOINTS, profile, ONCEWARD_CRASH_MATRIX="" if small else "all"
        ),
        "Lists of a million records": partial(
            suite,
            "Lists of a million records",
            ("tests/administration",),
            profile,
            ONCEWARD_LISTED_RECORDS="60000" if small else "1000000",
            ONCEWARD_TEST_BACKENDS="postgres valkey firestore",
        ),
        "The history of keys, with a million events": partial(
            suite,
            "The history of keys, with a million events",
            ("tests/integration/test_key_history.py",),
            profile,
            ONCEWARD_HISTORY_EVENTS="100000" if small else "1000000",
            ONCEWARD_TEST_BACKENDS="firestore",
        ),
        "A server that is killed": partial(killed_server, small=small),
        "Services": partial(suite, "The five systems as services, killed under load", SERVICES, profile),
        "Django": partial(suite, "Django, killed at every stage", DJANGO, profile, ONCEWARD_DJANGO_KILLS="1"),
        "Queues": partial(queues, profile, *(("400", "2") if small else ("20000", "40"))),
        "The console": partial(console, profile, small=small),
        "The site": partial(suite, "The site in a browser", SITE, profile, ONCEWARD_SITE_PAGES="" if small else "all"),
        "Every order of a race": partial(schedules, small=small),
        "Sagas": partial(sagas, small=small),
        "Schedules": partial(runners, small=small),
        "People: data sets, towns and shuffles": partial(people, small=small),
        "A large import": partial(large_import, small=small),
        "A backlog of statements": partial(statements, small=small),
        "A long backlog of statements": partial(more_statements, small=small),
        "The protocol as a model": partial(modelled, deep=not small),
        "Workers killed at random": partial(storms, "tests.chaos.orders:SYSTEM", plan, 0 if small else minutes),
        **{
            f"Storm of {listed.name}, on {kind}": partial(
                stormed, listed.path, of_a_system, 0 if small else minutes / 2, kind
            )
            for listed in SYSTEMS
            for kind in STORES[listed.name]
        },
        "The suite under load": partial(under_load, small=small),
        "Recorded histories": partial(recorded_histories, small=small, minutes=minutes / 4),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="The long, random tests.")
    parser.add_argument("--small", action="store_true", help="to see that it works: few examples, one quick storm")
    parser.add_argument(
        "--minutes",
        type=float,
        default=20.0,
        help="of storms, default 20; half as many of kills and of each system's storm, a quarter of histories",
    )
    parser.add_argument(
        "--seconds", type=float, default=A_STORM, help="of new events in each storm of a system, default %(default)g"
    )
    parser.add_argument("--only", default="", help="parts whose names contain this; the report names what was run")
    parser.add_argument(
        "--into", type=Path, help="folder of the report, default docs/evidence (small: none, it is printed)"
    )
    chosen = parser.parse_args(arguments, Chosen())
    wanted = {
        title: part
        for title, part in parts(chosen.small, chosen.minutes, chosen.seconds).items()
        if chosen.only in title
    }
    if not wanted:
        parser.error(f"no part is named like {chosen.only!r}")
    name = commit()
    sections = []
    for title, part in wanted.items():
        print(f"{title} …", flush=True)
        sections.append(part())
    text = report(sections, name, shlex.join(["python", "-m", "tests.soak", *arguments]))
    folder = chosen.into or (None if chosen.small else EVIDENCE)
    if folder is None:
        print(text)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"soak-{name}{_in_a_name(chosen.only)}.md"
        path.write_text(text, encoding="utf-8")
        print(f"written to {path}")
    return 0 if all(one.passed for one in sections) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
