"""The order and the titles of the pages. Edit `SECTIONS` to place a page.

A page that no section lists is not an error: it appears at the end of the section of its folder (`FOLDERS`), under its own heading. So a change that
only adds a page shows it on the site.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

Entry = str | tuple[str, list[str]]
"""A page, or a group: its title and its pages."""

SECTIONS: dict[str, list[Entry]] = {
    "Start": [
        "index.md",
        "start/install.md",
        "start/tutorial.md",
        "start/quickstart.md",
        "start/fastapi.md",
        "start/django.md",
        "start/celery.md",
    ],
    "Guides": [
        (
            "Basics",
            [
                "howto/keys.md",
                "howto/windows.md",
                "howto/results.md",
                "howto/claims.md",
                "howto/crashes.md",
                "howto/transactions.md",
                "howto/send-after-commit.md",
                "howto/errors.md",
                "howto/testing.md",
            ],
        ),
        (
            "HTTP",
            [
                "howto/http.md",
                "howto/fastapi.md",
                "howto/django-app.md",
                "howto/django-http.md",
                "howto/django-tasks.md",
                "howto/sqlalchemy.md",
                "howto/webhooks.md",
                "howto/push.md",
                "howto/outgoing.md",
            ],
        ),
        (
            "Queues and tasks",
            [
                "howto/queues.md",
                "howto/nats.md",
                "howto/redis-streams.md",
                "howto/rabbitmq.md",
                "howto/pubsub.md",
                "howto/sqs.md",
                "howto/kafka.md",
                "howto/tasks-celery.md",
                "howto/tasks-dramatiq.md",
                "howto/tasks-rq.md",
                "howto/tasks-taskiq.md",
            ],
        ),
        (
            "Workflows",
            [
                "howto/schedules.md",
                "howto/sagas.md",
                "howto/recovery.md",
                "howto/locks.md",
                "howto/batches.md",
                "howto/latest-state.md",
            ],
        ),
        (
            "Data",
            ["howto/imports.md", "howto/people.md", "howto/warehouse.md", "howto/bigquery.md", "howto/objects.md"],
        ),
        (
            "Stores",
            [
                "howto/choose-a-store.md",
                "howto/stores.md",
                "howto/postgresql.md",
                "howto/redis-and-valkey.md",
                "howto/firestore.md",
            ],
        ),
        (
            "Operate",
            [
                "howto/command.md",
                "howto/operations.md",
                "howto/events.md",
                "howto/counters.md",
                "howto/runbooks.md",
                "howto/stuck-keys.md",
                "howto/shutdown.md",
                "howto/deploy.md",
                "howto/deploy-database.md",
                "howto/rollout.md",
                "howto/backup.md",
                "howto/console.md",
                "howto/administration.md",
                "howto/mcp.md",
                "howto/storm.md",
            ],
        ),
    ],
    "Explain": [
        "explain/protocol.md",
        "explain/promises.md",
        "explain/promises-in-code.md",
        "explain/what-happens-when.md",
        "explain/state-table.md",
        "explain/group-commit.md",
        "explain/event-loop.md",
        "explain/concurrency.md",
        "explain/speed.md",
        "explain/comparison.md",
        (
            "How it is tested",
            [
                "explain/testing.md",
                "explain/evidence-model.md",
                "explain/evidence-histories.md",
                "explain/evidence-kills.md",
                "explain/mission.md",
                "evidence/README.md",
            ],
        ),
    ],
    "Reference": [
        "reference/defaults.md",
        "reference/command.md",
        "reference/events.md",
        "reference/metrics.md",
        "reference/schemas.md",
    ],
    "Migrate": [
        "migrate/powertools.md",
        "migrate/celery-once.md",
        "migrate/idemkit.md",
        "migrate/set-nx.md",
        "migrate/unique-constraint.md",
    ],
    "Project": [
        "project/glossary.md",
        "project/stability.md",
        "project/changelog.md",
        "project/security.md",
        "project/contributing.md",
    ],
}

FOLDERS = {
    "start": ("Start", "More"),
    "howto": ("Guides", "More guides"),
    "explain": ("Explain", "More"),
    "evidence": ("Explain", "Reports of long runs"),
    "reference/api": ("Reference", "Python"),
    "reference/cli": ("Reference", "Command line"),
    "reference": ("Reference", "More"),
    "migrate": ("Migrate", "More"),
    "examples": ("Project", "Example systems"),
}
"""Where the pages of a folder go that no section lists: the section, and the heading of the group there."""

SHORT_TITLES = {
    "index.md": "Onceward",
    "start/fastapi.md": "First FastAPI endpoint",
    "start/django.md": "First Django view",
    "start/celery.md": "First Celery task",
    "howto/batches.md": "Scripts",
    "howto/bigquery.md": "BigQuery",
    "howto/claims.md": "Claim blocks",
    "howto/command.md": "The command line",
    "howto/counters.md": "Counters and alerts",
    "howto/deploy-database.md": "Tables, pools, roll-outs",
    "howto/errors.md": "Errors",
    "howto/events.md": "Events and logs",
    "howto/http.md": "HTTP",
    "howto/latest-state.md": "Latest state",
    "howto/operations.md": "Table of operations",
    "howto/outgoing.md": "Outgoing calls",
    "howto/people.md": "People",
    "howto/push.md": "Push endpoints",
    "howto/recovery.md": "Recovery",
    "howto/results.md": "Typed results",
    "howto/sagas.md": "Sagas",
    "howto/shutdown.md": "Shutdown",
    "howto/storm.md": "Storm tests",
    "howto/stores.md": "SQLite and memory",
    "howto/stuck-keys.md": "Stuck keys",
    "howto/transactions.md": "Transactions",
    "howto/webhooks.md": "Webhooks",
    "howto/windows.md": "Windows",
    "explain/promises.md": "What is guaranteed",
    "explain/promises-in-code.md": "Guarantees as programs",
    "explain/event-loop.md": "The event loop",
    "explain/concurrency.md": "asyncio, threads, greenlets",
    "explain/speed.md": "Speed",
    "explain/comparison.md": "Comparison",
    "explain/testing.md": "Overview",
    "explain/evidence-model.md": "The protocol as a model",
    "explain/evidence-histories.md": "Recorded histories",
    "explain/evidence-kills.md": "Killed at every call",
    "explain/mission.md": "The mission",
    "reference/command.md": "The command: settings and exit codes",
    "migrate/powertools.md": "From powertools",
    "migrate/celery-once.md": "From celery-once",
    "migrate/idemkit.md": "From idemkit",
    "migrate/set-nx.md": "From SET NX",
    "migrate/unique-constraint.md": "From a unique constraint",
}
"""Titles for the navigation, where the heading of the page is long. Without an entry, it is the heading."""

DEFAULT_PLACE = ("Guides", "More guides")


def navigation(titles: Mapping[str, str]) -> list[tuple[str, object]]:
    """Return the tree of the navigation for the pages that exist: title, and a path or a list of the same."""
    missing = {page: title for page, title in titles.items() if page not in listed()}
    tree: list[tuple[str, object]] = []
    for section, entries in SECTIONS.items():
        branch: list[tuple[str, object]] = []
        for entry in entries:
            if isinstance(entry, str):
                branch += _leaves([entry], titles)
            elif leaves := _leaves(entry[1], titles):
                branch.append((entry[0], leaves))
        groups: dict[str, list[tuple[str, object]]] = {}
        for page in sorted(missing):
            place, heading = folder_of(page)
            if place == section:
                groups.setdefault(heading, []).extend(_leaves([page], titles))
        branch += list(groups.items())
        if branch:
            tree.append((section, branch))
    return tree


def listed() -> set[str]:
    """Return the pages that a section lists, whether they exist or not."""
    return {
        page
        for entries in SECTIONS.values()
        for entry in entries
        for page in ([entry] if isinstance(entry, str) else entry[1])
    }


def folder_of(page: str) -> tuple[str, str]:
    return next((place for folder, place in FOLDERS.items() if page.startswith(f"{folder}/")), DEFAULT_PLACE)


def _leaves(pages: list[str], titles: Mapping[str, str]) -> list[tuple[str, object]]:
    return [(_title(page, titles), page) for page in pages if page in titles]


def _title(page: str, titles: Mapping[str, str]) -> str:
    report = re.fullmatch(r"evidence/soak-([0-9a-f]{7})[0-9a-f]*-(.+)\.md", page)
    if report:  # their headings are all alike
        return f"{report[2].replace('-', ' ').capitalize()} ({report[1]})"
    return SHORT_TITLES.get(page) or titles[page] or page


def as_toml(tree: object) -> str:
    return f"nav = {_value(tree)}\n"


def _value(node: object) -> str:
    if isinstance(node, list):
        return "[" + ", ".join(f"{{ {json.dumps(title)} = {_value(child)} }}" for title, child in node) + "]"
    return json.dumps(node)
