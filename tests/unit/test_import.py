"""`import onceward` brings nothing that a blocking program without a database does not need.

What it takes is measured by `python -m bench --only import`; this test defines what it may import.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import json, sys
{before}
known = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - known)))
"""

OF_OURS = {"atexit", "contextvars", "hashlib", "math", "struct", "threading", "warnings", "zlib"}
"""Standard modules that we may bring beside those of msgspec and ormsgpack. Each costs every user of Onceward."""

ASKED_FOR = {
    "onceward.client.aio": "AsyncOnce",
    "onceward.cli": "the command",
    "onceward.engine.bulk": "map",
    "onceward.latest.flow": "state",
    "onceward.recovery.sweeper": "recovery",
    "onceward.sagas.flow": "sagas",
    "onceward.sagas.admin": "sagas",
    "onceward.sagas.claim": "sagas",
    "onceward.sagas.step_context": "sagas",
    "onceward.schedules.runner": "schedules",
    "onceward.engine.within": "within",
    "onceward.schedules.cron": "schedules",
    "onceward.results.encryption": "a cipher",
    "onceward.keys.jcs": "JsonKey",
    "onceward.sagas.journal": "sagas",
    "onceward.protocol.latest": "state",
    "onceward.protocol.ordering": "state",
    "onceward.recovery.decision": "recovery",
    "onceward.sagas.definition": "sagas",
    "onceward.sagas.decisions": "sagas",
    "onceward.results.stored_input": "store_input=True",
    "onceward.protocol.transitions": "a store",
    "onceward.observe.log": "a client",
    "onceward.operations.job_builder": "AsyncOnce",
    "onceward.recovery.deliveries": "recovery",
    "onceward.sagas": "sagas",
    "onceward.latest.api": "state",
    "onceward.schedules.slots": "schedules",
    "onceward.schedules": "schedules",
    "onceward.stores.cached": "cache=",
    "onceward.stores.memory": "a memory store",
    "onceward.stores.sqlite": "an SQLite store",
    "onceward.testing": "tests",
    "onceward.operations.transaction": "within",
    "onceward.runtime.aio": "AsyncOnce",
}
"""Our own modules that are imported only when they are used."""


def brought(statement: str, folder: Path, *, before: str = "") -> set[str]:
    """Return the modules that a statement imports in a new interpreter."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = PROBE.format(before=before, statement=statement)
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return set(json.loads(said.stdout))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


def test_import_brings_a_handful_of_standard_modules_and_no_other(compiled: Path) -> None:
    modules = brought("import onceward", compiled, before="import msgspec, ormsgpack")
    foreign = {name for name in modules if not name.startswith(("onceward", "_"))}  # _struct comes with struct
    assert foreign <= OF_OURS
    assert foreign >= {"hashlib", "threading"}, "otherwise this test checks nothing"


def test_import_brings_nothing_of_ours_that_has_to_be_asked_for(compiled: Path) -> None:
    modules = brought("import onceward", compiled)
    assert "onceward.client" in modules
    assert {name for name in modules if any(f"{name}.".startswith(f"{asked}.") for asked in ASKED_FOR)} == set()


def test_neither_asyncio_nor_a_driver_is_imported(compiled: Path) -> None:
    modules = brought("import onceward", compiled)
    assert modules & {"asyncio", "sqlite3", "_sqlite3", "socket", "ssl", "logging", "pathlib", "urllib.parse"} == set()


@pytest.mark.parametrize(
    ("statement", "brings"),
    [
        ("import onceward; onceward.Once('memory://').run('k', len, [1])", set()),
        ("import onceward; onceward.Once('sqlite://:memory:').run('k', len, [1])", {"sqlite3"}),
        ("import onceward; onceward.AsyncOnce", {"asyncio"}),
        ("import onceward.testing", set()),
    ],
)
def test_each_part_is_imported_only_when_used(compiled: Path, statement: str, brings: set[str]) -> None:
    modules = brought(statement, compiled)
    assert modules & {"asyncio", "sqlite3", "hypothesis"} == brings


def test_an_endpoint_imports_nothing_for_large_bodies(compiled: Path) -> None:
    """Only the middlewares put them into temporary files."""
    modules = brought("import onceward.http.endpoint", compiled)
    assert "onceward.http.endpoint" in modules
    assert modules & {"tempfile", "bz2", "lzma", "random"} == set()


def test_the_public_names_are_all_there(compiled: Path) -> None:
    said = "import onceward; assert [getattr(onceward, name) for name in onceward.__all__]; from onceward import *"
    brought(said, compiled)


def test_an_unknown_name_is_an_attribute_error(compiled: Path) -> None:
    brought("import onceward; assert not hasattr(onceward, 'Twice')", compiled)
