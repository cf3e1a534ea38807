"""`open_store(url)`: from a URL to a store, and errors that name the cure."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError, Once, open_store
from onceward.errors import MissingExtra
from onceward.stores import MemoryStore, registry
from onceward.stores.sqlite import SQLiteStore

STORE = """\
from onceward.stores import MemoryStore

class AcmeStore(MemoryStore):
    def __init__(self, url):
        super().__init__()
        self.name = url
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a package with a store, as another author would ship it."""

    def install(source: str, scheme: str = "acme") -> str:
        module = f"acme_{uuid.uuid4().hex}"
        folder = tmp_path / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[onceward.stores]\n{scheme} = {module}:AcmeStore\n")
        (tmp_path / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        return module

    return install


@pytest.mark.mission("B4")
def test_the_scheme_chooses_the_store(tmp_path: Path) -> None:
    assert isinstance(open_store("memory://"), MemoryStore)
    assert isinstance(open_store("MEMORY://"), MemoryStore)
    assert isinstance(open_store(f"sqlite:///{tmp_path}/a.db"), SQLiteStore)
    assert open_store("memory://") is not open_store("memory://")


def test_without_a_url_the_environment_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(registry.ENVIRONMENT, "memory://")
    assert isinstance(open_store(), MemoryStore)
    assert isinstance(Once().store, MemoryStore)
    assert isinstance(open_store("sqlite:///given.db"), SQLiteStore)  # what is given comes first
    monkeypatch.delenv(registry.ENVIRONMENT)
    assert open_store().name.endswith("onceward.db")
    assert registry.ENVIRONMENT == "ONCEWARD_STORE_URL"
    assert list(tmp_path.iterdir()) == []  # nothing is opened yet


def test_an_unknown_scheme_names_those_that_are_known(distribution: Any) -> None:
    distribution(STORE, "acme")
    with pytest.raises(
        ConfigurationError, match=r"no store is registered for pigeon://.*acme, .*memory, .*sqlite.*onceward\.stores"
    ):
        open_store("pigeon://localhost")


@pytest.mark.parametrize("url", ["onceward.db", "/var/lib/once.db", "memory"])
def test_what_is_no_url_is_answered_with_an_example(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a store URL.*sqlite:///onceward\.db"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    ["memory://host", "memory:///path", "memory://?size=3", "memory://?max_records=many", "memory://?max_records="],
)
def test_a_memory_url_has_one_setting(url: str) -> None:
    with pytest.raises(ConfigurationError, match="max_records=100000"):
        open_store(url)
    assert isinstance(open_store("memory://?max_records=5"), MemoryStore)


def test_another_package_brings_a_scheme(distribution: Any) -> None:
    module = distribution(STORE)
    store = open_store("acme://host/7")
    assert (type(store).__module__, store.name) == (module, "acme://host/7")
    once = Once("acme://host/7")
    assert once.run("k", len, [1, 2]) == 2
    once.close()


def test_a_missing_driver_is_named(distribution: Any) -> None:
    distribution("import driver_that_nobody_has\n")
    with pytest.raises(
        MissingExtra, match=r"acme://.*'driver_that_nobody_has', which is not installed.*extra"
    ) as caught:
        open_store("acme://")
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize(
    ("scheme", "driver", "extra"),
    [
        ("postgresql", "psycopg", "postgres"),
        ("postgres", "psycopg", "postgres"),
        ("redis", "redis", "redis"),
        ("firestore", "google.cloud.firestore_v1.types", "firestore"),
    ],
)
def test_a_missing_driver_of_ours_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, scheme: str, driver: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    for name in [name for name in sys.modules if name.startswith(f"onceward.stores.{extra}")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=rf'pip install "onceward\[{extra}\]"'):
        open_store(f"{scheme}://localhost/0")


def test_a_mistake_inside_of_a_driver_is_not_called_missing(distribution: Any) -> None:
    distribution("raise RuntimeError('broken build')\n")
    with pytest.raises(RuntimeError, match="broken build"):
        open_store("acme://")


def test_python_without_sqlite_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    for name in [name for name in sys.modules if name.startswith("onceward.stores.sqlite")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match="sqlite3") as caught:
        open_store("sqlite:///a.db")
    assert "onceward[" not in str(caught.value), "there is no extra for it"
