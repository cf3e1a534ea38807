"""`python -m examples.fleet serve` listens on this machine; `python -m examples.fleet storm` tests the guarantees."""

from __future__ import annotations

import argparse
import asyncio
import sys

from examples.fleet.app import Fleet
from onceward import AsyncOnce
from onceward.http.push import query_token
from onceward.testing import storm


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["storm"]:
        return storm.main("examples.fleet.storm:SYSTEM", arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m examples.fleet", description=__doc__)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("storm", help="duplicates, disorder, kills and pauses, then an audit", add_help=False)
    serve = commands.add_parser("serve", help="POST /pubsub/push, and a page with the current state")
    serve.add_argument("--store", default="sqlite:///fleet.db", help="URL, default %(default)s")
    serve.add_argument("--port", type=int, default=8080)
    serve.add_argument("--token", help="require ?token=… on pushes; without it, every local program may push")
    chosen = parser.parse_args(arguments)
    asyncio.run(_serve(chosen.store, chosen.port, chosen.token))
    return 0


async def _serve(store: str, port: int, token: str | None) -> None:
    try:
        import uvicorn  # not needed for storms
    except ModuleNotFoundError:
        sys.exit("serve needs a server: pip install uvicorn")

    async with AsyncOnce(store, app="fleet", counters=True) as once:
        await once.migrate()
        fleet = Fleet(once, check=query_token(token) if token else None)
        await uvicorn.Server(uvicorn.Config(fleet, host="127.0.0.1", port=port, ws="none")).serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
