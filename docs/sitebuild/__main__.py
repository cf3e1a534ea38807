"""Build the site, or serve it and rebuild it when a page changes: `python -m docs.sitebuild [build|serve]`."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from docs.sitebuild.assemble import ROOT, SOURCE, assemble, sources
from docs.sitebuild.site_files import check_offline, write_llms_files

SITE = ROOT / "site"
POLL_SECONDS = 1.0
ADDRESS = "127.0.0.1:8765"


def zensical(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "zensical", *arguments, "--config-file", str(SOURCE / "zensical.toml")]


def build() -> int:
    """Build `site/`. A broken link or anchor, or an address outside of the site in a page's head, is an error."""
    pages = assemble()
    finished = subprocess.run(zensical("build", "--clean", "--strict"), cwd=ROOT, check=False)  # noqa: S603 (our own tool)
    if finished.returncode != 0:
        return finished.returncode
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.move(SOURCE / "site", SITE)  # Zensical writes only below its own folder
    write_llms_files(SITE, pages)
    problems = check_offline(SITE)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{len(pages)} pages in site/: open site/index.html, or preview it with: make docs ARGS=serve")
    return 1 if problems else 0


def serve() -> int:
    """Serve the site on this machine until Ctrl-C. Changed pages are assembled again, and Zensical reloads them."""
    assemble()
    stop = threading.Event()
    watcher = threading.Thread(target=_assemble_changes, args=(stop,), daemon=True)
    watcher.start()
    try:
        return subprocess.run(zensical("serve", "--dev-addr", ADDRESS), cwd=ROOT, check=False).returncode  # noqa: S603 (as above)
    except KeyboardInterrupt:
        return 0
    finally:
        stop.set()
        watcher.join()


def _assemble_changes(stop: threading.Event) -> None:
    seen = _modified(sources())
    while not stop.wait(POLL_SECONDS):
        now = _modified(sources())
        if now != seen:
            seen = now
            assemble()


def _modified(files: list[Path]) -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in files}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.sitebuild", description=__doc__)
    parser.add_argument("action", nargs="?", choices=("build", "serve"), default="build")
    return build() if parser.parse_args().action == "build" else serve()


if __name__ == "__main__":
    sys.exit(main())
