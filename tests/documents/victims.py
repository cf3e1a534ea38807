"""Documents in processes that are killed: `python -m tests.documents.victims PLACE FOLDER SCENE`.

One process for each point: it processes its own document up to that point, and SIGKILLs itself there. Points are
before and after every call to the store, every question to a model, every file and every row. The last process, an hour
later by the store's clock, gets them all delivered again, renamed. One line of JSON says how each ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from examples.documents.models import Models
from examples.documents.samples import BLOCKED
from onceward import Once, content_key
from onceward.objects.folder import Folder
from onceward.stores.sqlite import SQLiteStore
from onceward.warehouse.sqlite import SQLiteWarehouse
from tests.chaos.saga_steps import Points
from tests.chaos.saga_victim import HOUR, in_a_process, store_at
from tests.documents.pipeline_worker import PipelineWorker, api, invoice

SCENARIOS = {"published": "Acme Ltd", "refused by the warehouse": BLOCKED}


def document(scenario: str, number: int) -> bytes:
    """Return a document whose date takes the cheap model two questions."""
    return invoice(id=f"R-{number}", company=SCENARIOS[scenario], date="01.03.2026")


class Life:
    """The work of one process."""

    def __init__(self, place: str, folder: Path, *, at: int | None = None, later: int = 0) -> None:
        self._points = Points(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        self._folder = folder
        self._once = Once(store_at(place, later), app="documents", lease="10m")
        self.worker = PipelineWorker(folder, self._once, "http://unused")
        store: Any = self._once.engine.store
        for verb in ("claim", "renew", "settle"):
            setattr(store, verb, self._awaited(getattr(store, verb)))
        for kind, verb in ((Folder, "create"), (Folder, "delete"), (SQLiteWarehouse, "load")):
            setattr(kind, verb, self._called(getattr(kind, verb)))
        Models.ask = self._called(self._asked)  # type: ignore[method-assign]

    def _asked(self, _models: Models, model: str, turns: list[str], _check: object) -> str:
        with (self._folder / "asked").open("a") as log:
            log.write(f"{turns[0].split('Invoice ')[1].split()[0]}\n")
        return api.rules(model, turns)

    def _awaited(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def pointed(*args: Any, **kwargs: Any) -> Any:
            self._points()
            answers = await call(*args, **kwargs)
            self._points()
            return answers

        return pointed

    def _called(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def pointed(*args: Any, **kwargs: Any) -> Any:
            self._points()
            answer = call(*args, **kwargs)
            self._points()
            return answer

        return pointed

    def deliver(self, content: bytes, name: str) -> str:
        return self.worker.deliver(content, name, source=f"gs://in/{name}").kind

    def work(self, content: bytes, name: str) -> None:
        """Process the document up to this process's kill point, or to the end if there are fewer points."""
        self.deliver(content, name)
        self.close()

    def again(self, scenario: str, documents: int) -> None:
        """Deliver all of them again under other names, and return how each ended."""
        kinds = [self.deliver(document(scenario, number), f"{number} again.pdf") for number in range(1, documents + 1)]
        files = [content_key(content) for content in self.worker.files().values()]
        rows = [key for key, _ in self.worker.rows()]
        asked = (self._folder / "asked").read_text().split()
        for number, kind in enumerate(kinds, 1):
            key = content_key(document(scenario, number))
            counts = {
                "kind": kind,
                "files": files.count(key),
                "rows": rows.count(key),
                "asked": asked.count(f"R-{number}"),
            }
            print(json.dumps({"point": number, **counts, **self.worker.record(key)}), flush=True)

    def close(self) -> None:
        self.worker.house.close()
        self._once.close(timeout=0)


def main(place: str, base: str, scenario: str) -> int:
    folder = Path(base)
    # Import lazily imported modules once here instead of in each child.
    with tempfile.TemporaryDirectory() as rehearsal, Once(SQLiteStore(f"{rehearsal}/once.db")) as once:
        worker = PipelineWorker(Path(rehearsal), once, "http://unused")
        worker.deliver(b"no document")
        worker.house.close()
    point = 0
    for point in count(1):
        ended = in_a_process(lambda: Life(place, folder, at=point).work(document(scenario, point), f"{point}.pdf"))  # noqa: B023 (called immediately)
        if ended == 0:  # it was not killed, so there are no more points
            break
        if ended != -signal.SIGKILL:
            return 1
    return in_a_process(lambda: Life(place, folder, later=HOUR).again(scenario, point))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
