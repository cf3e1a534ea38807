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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Literal
from wsgiref.simple_server import WSGIServer, make_server

from examples.documents.arrivals import Inbox
from examples.documents.models import Models
from examples.documents.pipeline import Documents
from examples.documents.samples import lines, pdf
from examples.documents.stand_in import stand_in
from onceward import Once, OncewardError, content_key
from onceward.objects import open_objects
from onceward.testing import storm
from onceward.warehouse import open_warehouse

LEASE = "600s"  # as the document asks; renewed every 120 s
SAMPLES = 12
MAX_SHOWN = 70


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["storm"]:
        return storm.main("examples.documents.storm:SYSTEM", arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m examples.documents", description="Process each document once.")
    parser.add_argument("command", choices=("demo", "watch", "serve", "show", "storm"), nargs="?", default="demo")
    parser.add_argument("folder", type=Path, nargs="?", help="contains inbox/; by default also records, files and rows")
    parser.add_argument("file", type=Path, nargs="?", help="show the record of this file")
    parser.add_argument("--store", help="URL of the records (default: sqlite, in the folder)")
    parser.add_argument("--objects", help="URL of the files (default: bucket/ in the folder)")
    parser.add_argument("--warehouse", help="URL of the rows (default: sqlite, in the folder)")
    parser.add_argument("--models", help="URL of the models' API, key in $MODELS_KEY (default: a local simulation)")
    parser.add_argument("--fail-open", action="store_true", help="while the store is down, run without a claim")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--verbose", action="store_true", help="log every event")
    chosen = parser.parse_args(arguments)
    needed = {"watch": chosen.folder, "serve": chosen.folder, "show": chosen.file}
    if needed.get(chosen.command, chosen) is None:
        parser.error(f"{chosen.command} needs a folder{', and a file' * (chosen.command == 'show')}")
    if chosen.command == "serve" and not os.environ.get("WEBHOOK_SECRET"):
        parser.error("serve needs the webhook secret: WEBHOOK_SECRET=whsec_… (base64)")
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    logging.getLogger("documents").setLevel(logging.DEBUG if chosen.verbose else logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="onceward-documents-") as temporary:
        chosen.folder = (chosen.folder or Path(temporary)).absolute()
        (chosen.folder / "inbox").mkdir(parents=True, exist_ok=True)
        with open_documents(chosen) as documents:
            run(chosen, documents, Inbox(documents, chosen.folder / "inbox"))
    return 0


@contextmanager
def open_documents(chosen: argparse.Namespace) -> Iterator[Documents]:
    folder: Path = chosen.folder
    with (
        stand_in(folder / "calls") as local,
        Once(chosen.store or f"sqlite:///{folder}/once.db", app="documents", lease=LEASE, counters=True) as once,
        open_objects(chosen.objects or (folder / "bucket").as_uri()) as objects,
    ):
        models = Models(chosen.models or local, os.environ.get("MODELS_KEY", ""), pause=1.0 if chosen.models else 0.05)
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


def run(chosen: argparse.Namespace, documents: Documents, inbox: Inbox) -> None:
    if chosen.command == "demo":
        demo(chosen.folder, documents, inbox)
    elif chosen.command == "watch":
        print(f"watching {chosen.folder / 'inbox'}", flush=True)
        inbox.watch()
    elif chosen.command == "show":
        for name, fact in (documents.record(content_key(chosen.file)) or {"status": "never seen"}).items():
            print(f"{name:<16} {fact}")
    else:
        hook = inbox.webhook(os.environ["WEBHOOK_SECRET"])
        with make_server("127.0.0.1", chosen.port, hook, Server) as server:
            print(f"POST http://127.0.0.1:{server.server_port}/", flush=True)
            server.serve_forever()


def demo(folder: Path, documents: Documents, inbox: Inbox) -> None:
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
        print(f"{path.name:<20}{outcome.kind:<10}{facts['status']:<11}{result}")
    calls = (folder / "calls").read_text(encoding="utf-8").split()
    print(f"\n{calls.count('200')} model calls; {calls.count('429')} requests were rejected as too many (429)")


class Server(ThreadingMixIn, WSGIServer):
    """The standard library's server, with a thread per request. In production use a WSGI server instead."""

    daemon_threads = True


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OncewardError, FileNotFoundError) as error:
        sys.exit(f"python -m examples.documents: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
