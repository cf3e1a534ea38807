"""The console of the demo: one console per system, on the records that its storm left behind."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route

from onceward import Once
from onceward.console import Console
from onceward.console.serve import listen, serve
from onceward.people.stored_declaration import open_declared_people

INDEX = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Onceward demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="{first}/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{first}/static/console.css"><link rel="stylesheet" href="{first}/static/parts.css"></head>
<body class="alone"><main><h1>Onceward demo</h1><p>The records that the storms left behind, by system.</p>
<ul>{links}</ul></main></body></html>"""


def url_of_file_with(table: str, folder: Path) -> str | None:
    """Return the URL of the SQLite file that has this table."""
    for path in sorted(folder.glob("*.db")):
        with closing(sqlite3.connect(path)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
                return f"sqlite:///{path}"
    return None


def console_app(folder: Path, systems: Sequence[str], stack: ExitStack) -> Starlette:
    """Return an application with a console per system and a page that links to them."""
    mounts: dict[str, Console] = {}
    for system in systems:
        people_url = url_of_file_with("onceward_people", folder / system)
        people = None if people_url is None else stack.enter_context(open_declared_people(people_url))
        # The warehouse of `learning` is its own record of what was loaded, so that system has no store.
        store = url_of_file_with("onceward_records", folder / system) or "memory://"
        once = stack.enter_context(Once(store))
        mounts[system] = Console(once, write=True, title=system, people=people)
    links = "".join(f'<li><a href="/{name}/">{name}</a></li>' for name in mounts)

    async def index(_request: Request) -> Response:
        return HTMLResponse(INDEX.format(first=f"/{next(iter(mounts), '')}", links=links))

    return Starlette(routes=[Route("/", index), *(Mount(f"/{name}", app) for name, app in mounts.items())])


def serve_console(folder: Path, systems: Sequence[str], port: int) -> None:
    """Serve the consoles on this machine until Ctrl-C."""
    with ExitStack() as stack:
        app = console_app(folder, systems, stack)
        listening = stack.enter_context(listen("127.0.0.1", port))
        serve(
            app, listening, lambda address: print(f"\nThe records in a browser: {address} (Ctrl-C ends it)", flush=True)
        )
