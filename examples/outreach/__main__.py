"""`python -m examples.outreach [morning | audit | windows | serve | storm]`: see README.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from examples.service import server
from onceward.errors import OncewardError
from onceward.testing import storm

from .app import Outreach
from .audit import report
from .endpoint import Endpoint
from .evidence import AuditData
from .outside import Outside
from .settings import VARIABLES, from_environment

FILES = Path(__file__).with_name("files")
SYSTEM = "examples.outreach.storm:SYSTEM"
LEASE_HELP = "how long a claim outlives a crashed worker, instead of the leases in onceward.toml; $LEASE"


def morning(folder: Path, database: str, output: Any = print) -> None:
    """Deliver everything twice, to a worker that is restarted in between."""
    with Outside(folder / "outside.db") as outside:
        for delivery in ("first", "second"):
            output(f"{delivery} delivery")
            with closing(Outreach(database, smtp=outside.smtp, api=outside.api)) as outreach:
                summary = outreach.import_prospects(FILES / "prospects.csv")
                output("  import   ", "nothing to do" if summary.replayed else summary)
                output("  cron     ", outreach.cron.tick(latest_slot()))
                output("  email    ", outreach.send_email("p1", "Once more?"))
                output("  website  ", outreach.enrich("p1", "website"))
                for file in sorted(FILES.glob("*.eml")):
                    output(f"  {file.stem:<9}", outreach.receive(file.read_bytes()))
                output("  charge   ", outreach.charge.outcome("acme", 7, 1900))
                output("  sync     ", outreach.with_lock("sync", lambda: "synced"))
        for what in ("mails", "charges", "alerts"):
            output(f"{what:<8}", outside.execute(f"SELECT count(*) FROM {what}")[0][0])


def latest_slot() -> datetime:
    """Return the latest cron slot. There is none on Sundays and at night."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    hours = (now - timedelta(hours=back) for back in range(1, 48))
    return next(at for at in hours if at.weekday() < 6 and 8 <= at.hour <= 18)


@contextmanager
def data_folder(folder: Path | None, *, make: bool) -> Iterator[Path]:
    if folder is not None:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        yield folder.resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="onceward-outreach-") as name:
            yield Path(name)


def serve(arguments: list[str]) -> int:
    """Serve the endpoints for replies and enrichments until stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.outreach serve",
        description="POST /replies and POST /webhooks/enrichment, with /healthz, /readyz and /metrics.",
        epilog=f"environment:{VARIABLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--database", help="URL; $OUTREACH_DATABASE")
    parser.add_argument("--lease", default=os.environ.get("LEASE"), type=float, metavar="SECONDS", help=LEASE_HELP)
    server.add_options(parser)
    chosen = parser.parse_args(arguments)
    token, secret = (os.environ.get(f"OUTREACH_{name}") for name in ("REPLIES_TOKEN", "ENRICHMENT_SECRET"))
    if not token and not secret:
        parser.error("nothing to serve: set OUTREACH_REPLIES_TOKEN or OUTREACH_ENRICHMENT_SECRET")
    with closing(from_environment(chosen.database, lease=chosen.lease)) as outreach:
        server.serve(server.as_asgi(Endpoint(outreach, token, secret)), outreach.once, chosen)
    return 0


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["storm"]:
        return storm.main(SYSTEM, arguments[1:])
    if arguments[:1] == ["serve"]:
        return serve(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m examples.outreach", description="A small outreach system.")
    parser.add_argument("what", nargs="?", choices=["morning", "audit", "windows", "serve", "storm"], default="morning")
    parser.add_argument(
        "folder", nargs="?", type=Path, help="folder of the data (default: a temporary one); audit reads it"
    )
    parser.add_argument("--database", help="URL (default: a SQLite file in the folder)")
    chosen = parser.parse_args(arguments)
    if chosen.what == "audit" and chosen.folder is not None and not (chosen.folder / "outside.db").exists():
        parser.error(f"{chosen.folder} has no data → `morning {chosen.folder}` creates it")
    with data_folder(chosen.folder, make=chosen.what != "audit") as folder:
        database = chosen.database or f"sqlite:///{folder}/outreach.db"
        if chosen.what == "windows":
            with closing(Outreach(database, smtp="localhost:25", api="http://localhost")) as outreach:
                print(*(f"{name:<8} {window:<30} {key}" for name, window, key in outreach.windows()), sep="\n")
            return 0
        if chosen.what == "audit" and chosen.folder and not (folder / "outside.db").exists():
            parser.error(
                f"there is nothing to audit in {folder}: `python -m examples.outreach morning {folder}` creates it"
            )
        if chosen.what == "morning" or chosen.folder is None:
            morning(folder, database, print if chosen.what == "morning" else lambda *_: None)
        return 0 if report(AuditData(database, folder / "outside.db")) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OncewardError as error:
        sys.exit(f"python -m examples.outreach: {error}")
