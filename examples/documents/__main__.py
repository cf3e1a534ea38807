"""Documents: `python -m examples.documents [demo|watch|serve|show|storm]`, see README.md.

`demo` (the default) creates sample invoices, some of them twice, renamed or damaged, and prints the result of each.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from examples.documents.arrivals import Announcements, Arrivals, Inbox, watch
from examples.documents.buckets import Bucket
from examples.documents.models import CHEAP, STRONG, Models
from examples.documents.pipeline import Documents
from examples.documents.samples import lines, pdf
from examples.documents.stand_in import stand_in
from examples.service import server
from onceward import Once, OncewardError, content_key
from onceward.objects import open_objects
from onceward.testing import storm
from onceward.warehouse import open_warehouse

LEASE = "600s"  # as the specification requires
HEARTBEAT = "120s"  # as the specification requires
PUSH = "/pubsub/push"
SAMPLES = 12
MAX_SHOWN = 70


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["storm"]:
        return storm.main("examples.documents.storm:SYSTEM", arguments[1:])
    env = os.environ.get
    parser = argparse.ArgumentParser(
        prog="python -m examples.documents",
        description="Process each document once.",
        epilog="serve accepts webhooks that are signed with the secret $WEBHOOK_SECRET (whsec_…, base64).",
    )
    parser.add_argument("command", choices=("demo", "watch", "serve", "show", "storm"), nargs="?", default="demo")
    parser.add_argument("folder", type=Path, nargs="?", help="contains inbox/; by default also records, files and rows")
    parser.add_argument("file", type=Path, nargs="?", help="show the record of this file")
    parser.add_argument(
        "--inbox",
        default=env("INBOX"),
        metavar="URL",
        help="gs://…, s3://… or file:///…, instead of inbox/ in the folder; $INBOX",
    )
    parser.add_argument(
        "--store", default=env("STORE"), help="URL of the records (default: sqlite, in the folder); $STORE"
    )
    parser.add_argument(
        "--objects", default=env("OBJECTS"), help="URL of the files (default: bucket/ in the folder); $OBJECTS"
    )
    parser.add_argument(
        "--warehouse", default=env("WAREHOUSE"), help="URL of the rows (default: sqlite, in the folder); $WAREHOUSE"
    )
    parser.add_argument(
        "--models",
        default=env("MODELS_URL"),
        help="URL of the models' API, key in $MODELS_KEY (default: a local simulation); $MODELS_URL",
    )
    parser.add_argument(
        "--cheap-model", default=env("CHEAP_MODEL", CHEAP), help="asked first, default %(default)s; $CHEAP_MODEL"
    )
    parser.add_argument(
        "--strong-model",
        default=env("STRONG_MODEL", STRONG),
        help="asked if the other is wrong twice, default %(default)s; $STRONG_MODEL",
    )
    parser.add_argument(
        "--lease",
        default=env("LEASE", LEASE),
        help="how long a claim outlives a crashed worker, default %(default)s; $LEASE",
    )
    parser.add_argument(
        "--heartbeat",
        default=env("HEARTBEAT", HEARTBEAT),
        help="interval of lease renewals, at most half of the lease, default %(default)s; $HEARTBEAT",
    )
    parser.add_argument(
        "--deliveries",
        default=env("DELIVERIES"),
        metavar="URL",
        help="records of webhook events, default: beside those of documents; $DELIVERIES",
    )
    server.add_oidc_options(parser, f"requests to {PUSH}")
    parser.add_argument("--fail-open", action="store_true", help="while the store is down, run without a claim")
    server.add_options(parser)
    parser.add_argument("--verbose", action="store_true", help="log every event")
    chosen = parser.parse_args(arguments)
    needed = {"watch": chosen.folder, "serve": chosen.folder, "show": chosen.file}
    if needed.get(chosen.command, chosen) is None:
        parser.error(f"{chosen.command} needs a folder{', and a file' * (chosen.command == 'show')}")
    if chosen.command == "serve" and not (os.environ.get("WEBHOOK_SECRET") or chosen.inbox):
        parser.error("serve needs the webhook secret (WEBHOOK_SECRET=whsec_…, base64), or --inbox for notifications")
    if chosen.command == "serve" and chosen.inbox and server.is_public(chosen.host) and not chosen.oidc_audience:
        parser.error(f"on {chosen.host}, notifications must be authenticated: pass --oidc-audience and --oidc-email")
    if bool(chosen.oidc_audience) is not bool(chosen.oidc_email):
        parser.error("--oidc-audience and --oidc-email belong together")
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    logging.getLogger("documents").setLevel(logging.DEBUG if chosen.verbose else logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="onceward-documents-") as temporary:
        chosen.folder = (chosen.folder or Path(temporary)).absolute()
        (chosen.folder / "inbox").mkdir(parents=True, exist_ok=True)
        with open_documents(chosen) as documents:
            run(chosen, documents)
    return 0


@contextmanager
def open_documents(chosen: argparse.Namespace) -> Iterator[Documents]:
    folder: Path = chosen.folder
    with (
        stand_in(folder / "calls") as local,
        Once(
            records_url(chosen), app="documents", lease=chosen.lease, heartbeat=chosen.heartbeat, counters=True
        ) as once,
        open_objects(chosen.objects or (folder / "bucket").as_uri()) as objects,
    ):
        models = Models(
            chosen.models or local,
            os.environ.get("MODELS_KEY", ""),
            cheap=chosen.cheap_model,
            strong=chosen.strong_model,
            pause=1.0 if chosen.models else 0.05,
        )
        warehouse = open_warehouse(chosen.warehouse or f"sqlite:///{folder}/warehouse.db")
        on_store_down: Literal["run", "raise"] = "run" if chosen.fail_open else "raise"
        try:
            yield Documents(
                once,
                objects,
                warehouse,
                models,
                on_store_down=on_store_down,
                unprotected_list=folder / "unprotected.txt",
            )
        finally:
            warehouse.close()


def records_url(chosen: argparse.Namespace) -> str:
    return chosen.store or f"sqlite:///{chosen.folder}/once.db"


def deliveries_url(chosen: argparse.Namespace) -> str:
    """Return where webhook events are recorded. On Firestore it is a collection of its own."""
    url = records_url(chosen)
    if chosen.deliveries or not url.startswith("firestore:"):
        return chosen.deliveries or url
    parts = urlsplit(url)
    database = dict(parse_qsl(parts.query)).get("database", "")
    query = f"database={database}" if database else ""
    return parts._replace(path=f"{parts.path}_deliveries", query=query).geturl()


def run(chosen: argparse.Namespace, documents: Documents) -> None:
    with ExitStack() as stack:
        arrivals: Inbox | Bucket = Inbox(documents, chosen.folder / "inbox")
        if chosen.inbox:
            arrivals = Bucket(documents, stack.enter_context(open_objects(chosen.inbox)))
        if chosen.command == "demo":
            demo(chosen.folder, documents, arrivals)
        elif chosen.command == "watch":
            print(f"watching {chosen.inbox or chosen.folder / 'inbox'}", flush=True)
            watch(arrivals)
        elif chosen.command == "show":
            for name, fact in (documents.record(content_key(chosen.file)) or {"status": "never seen"}).items():
                print(f"{name:<16} {fact}")
        else:
            deliveries = stack.enter_context(Once(deliveries_url(chosen), app="documents", counters=True))
            serve(chosen, arrivals, documents.once, deliveries)


def serve(chosen: argparse.Namespace, arrivals: Inbox | Bucket, once: Once, deliveries: Once) -> None:
    routes: dict[str, Any] = {}
    if os.environ.get("WEBHOOK_SECRET"):
        routes["/"] = Announcements(arrivals, deliveries, os.environ["WEBHOOK_SECRET"]).endpoint
    if isinstance(arrivals, Bucket):
        check = None
        if chosen.oidc_audience:
            from onceward.http.oidc import google_oidc  # needs PyJWT

            check = google_oidc(chosen.oidc_audience, email=chosen.oidc_email)
        routes[PUSH] = arrivals.push(deliveries, check)
    logging.getLogger("documents").setLevel(logging.NOTSET)
    print(f"routes: {', '.join(f'POST {path}' for path in routes)}", flush=True)
    server.serve(server.as_asgi(Paths(routes)), once, chosen, deliveries)


class Paths:
    """A WSGI application with one application per path."""

    def __init__(self, routes: Mapping[str, Any]) -> None:
        self._routes = routes

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        found = self._routes.get(environ["PATH_INFO"])
        if found is None:
            start_response("404 Not Found", [("content-length", "0")])
            return [b""]
        answer: Iterable[bytes] = found(environ, start_response)
        return answer


def demo(folder: Path, documents: Documents, inbox: Arrivals) -> None:
    dice = random.Random(1)
    for number in range(1, SAMPLES + 1):
        printed = lines(number, dice)
        (folder / "inbox" / f"scan {number:02}.pdf").write_bytes(pdf(printed))
        if number % 4 == 0:
            (folder / "inbox" / f"scan {number:02}_renamed.pdf").write_bytes(pdf(printed))
            (folder / "inbox" / f"scan {number:02}_page_2.pdf").write_bytes(pdf([*printed, "Page 2"]))
    for path, outcome in inbox.scan():
        facts = documents.record(outcome.key) or {}
        result = (facts["gcs_output_path"] or "").rpartition("/")[2] or facts["error_message"] or ""
        result = result if len(result) < MAX_SHOWN else f"{result[: MAX_SHOWN // 2]}…{result[-MAX_SHOWN // 2 :]}"
        print(f"{Path(path).name:<20}{outcome.kind:<10}{facts['status']:<11}{result}")
    calls = (folder / "calls").read_text(encoding="utf-8").split()
    print(f"\n{calls.count('200')} model calls; {calls.count('429')} requests were rejected as too many (429)")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OncewardError, FileNotFoundError) as error:
        sys.exit(f"python -m examples.documents: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
