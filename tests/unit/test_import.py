"""`import onceward` is quick, and brings nothing that a blocking program without a database does not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 0.060  # seconds; a command that only prints its help pays this, too
SLOW_MACHINE = 2.3  # there, so many times what our two dependencies take alone
PROBE = """
import sys, time
before = time.perf_counter()
{statement}
took = time.perf_counter() - before
import json
print(json.dumps([took, sorted(sys.modules)]))
"""


def fresh(statement: str, folder: Path) -> tuple[float, set[str]]:
    """Seconds and modules of a statement in a new interpreter. Compiled files are kept, as in an installed package."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = PROBE.format(statement=statement)
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    took, modules = json.loads(said.stdout)
    return took, set(modules)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


def test_neither_asyncio_nor_a_driver_comes_along(compiled: Path) -> None:
    _, modules = fresh("import onceward", compiled)
    heavy = {"asyncio", "sqlite3", "_sqlite3", "cryptography", "pydantic", "attrs", "attr", "hypothesis", "pytest"}
    heavy |= {"concurrent.futures", "importlib.metadata", "multiprocessing", "socket", "ssl", "subprocess", "http"}
    assert modules & heavy == set()
    assert "onceward.aio" not in modules
    assert not {name for name in modules if name.startswith(("onceward.testing", "onceward.stores.sqlite"))}


@pytest.mark.parametrize(
    ("statement", "brings"),
    [
        ("import onceward; onceward.Once('memory://').run('k', len, [1])", set()),
        ("import onceward; onceward.Once('sqlite://:memory:').run('k', len, [1])", {"sqlite3"}),
        ("import onceward; onceward.AsyncOnce", {"asyncio"}),
        ("import onceward.testing", set()),
    ],
)
def test_each_part_costs_those_who_use_it(compiled: Path, statement: str, brings: set[str]) -> None:
    _, modules = fresh(statement, compiled)
    assert modules & {"asyncio", "sqlite3", "hypothesis"} == brings


def test_the_public_names_are_all_there(compiled: Path) -> None:
    said = "import onceward; assert [getattr(onceward, name) for name in onceward.__all__]; from onceward import *"
    fresh(said, compiled)


def test_an_unknown_name_is_an_attribute_error(compiled: Path) -> None:
    fresh("import onceward; assert not hasattr(onceward, 'Twice')", compiled)


def test_import_takes_less_than_sixty_milliseconds(compiled: Path) -> None:
    """The best of many, because other tests run beside this one; stops as soon as one was quick enough."""
    fresh("import onceward", compiled)
    ours, alone = [], []
    for _ in range(20):
        ours.append(fresh("import onceward", compiled)[0])
        alone.append(fresh("import msgspec, ormsgpack", compiled)[0])
        if min(ours) < max(LIMIT, SLOW_MACHINE * min(alone)):
            return
    pytest.fail(f"the quickest import took {min(ours) * 1000:.0f} ms, of dependencies {min(alone) * 1000:.0f} ms")
