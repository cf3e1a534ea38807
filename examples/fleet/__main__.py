"""`python -m examples.fleet serve` listens on this machine; `python -m examples.fleet storm` tests the guarantees."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Any

from examples.fleet.stores import opened_fleet
from examples.service import server
from onceward.errors import OncewardError
from onceward.http.push import query_token
from onceward.http.tokens import Check
from onceward.testing import storm


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["storm"]:
        return storm.main("examples.fleet.storm:SYSTEM", arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m examples.fleet", description=__doc__)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("storm", help="duplicates, disorder, kills and pauses, then an audit", add_help=False)
    serve = commands.add_parser("serve", help="POST /pubsub/push, and a page with the current state")
    env = os.environ.get
    serve.add_argument("--store", default=env("STORE", "sqlite:///fleet.db"), help="URL, default %(default)s; $STORE")
    server.add_options(serve)
    serve.add_argument(
        "--token",
        default=env("PUSH_TOKEN"),
        help="require ?token=… on pushes; without it, every local program may push; $PUSH_TOKEN",
    )
    server.add_oidc_options(serve, "pushes")
    serve.add_argument(
        "--oidc-issuer", default=env("OIDC_ISSUER"), metavar="URL",
        help="another provider of signed tokens than Google; $OIDC_ISSUER",
    )  # fmt: skip
    serve.add_argument(
        "--oidc-keys", default=env("OIDC_KEYS"), metavar="URL", help="public keys of that provider (JWKS); $OIDC_KEYS"
    )
    serve.add_argument(
        "--topic", action="append", metavar="SUBSCRIPTION=TOPIC",
        help="the topic of a subscription; may be repeated; $TOPICS, separated by commas",
    )  # fmt: skip
    serve.add_argument(
        "--per-region", action="store_true", default=env("PER_REGION") == "1",
        help="one document for each region of a service; $PER_REGION=1",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    chosen.topic = chosen.topic or [one for one in env("TOPICS", "").split(",") if one]
    if not all(all(one.partition("=")) for one in chosen.topic):
        parser.error("--topic is SUBSCRIPTION=TOPIC")
    if server.is_public(chosen.host) and not (chosen.token or chosen.oidc_audience):
        parser.error(
            f"on {chosen.host}, pushes must be authenticated: pass --oidc-audience and --oidc-email, or --token"
        )
    if bool(chosen.oidc_audience) is not bool(chosen.oidc_email):
        parser.error("--oidc-audience and --oidc-email belong together")
    asyncio.run(_serve(chosen))
    return 0


async def _serve(chosen: argparse.Namespace) -> None:
    topics = dict(pair.split("=", 1) for pair in chosen.topic)
    choices = {"check": _check(chosen), "topics": topics, "per_region": chosen.per_region}
    async with opened_fleet(chosen.store, counters=True, **choices) as fleet:
        await server.serve_async(fleet, fleet.once, chosen)


def _check(chosen: argparse.Namespace) -> Check | None:
    """Return how pushes are authenticated: by a signed token, by a secret in the URL, or not at all."""
    if not chosen.oidc_audience:
        return query_token(chosen.token) if chosen.token else None
    from onceward.http.oidc import google_oidc  # needs PyJWT

    other: dict[str, Any] = {}
    if chosen.oidc_issuer:
        other["issuers"] = [chosen.oidc_issuer]
    if chosen.oidc_keys:
        other["keys_url"] = chosen.oidc_keys
    return google_oidc(chosen.oidc_audience, email=chosen.oidc_email, **other)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OncewardError as error:
        sys.exit(f"python -m examples.fleet: {error}")
