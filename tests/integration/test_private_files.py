"""Database files can be read by their owner only, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward import Once
from onceward.people import People
from onceward.warehouse import open_warehouse

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@pytest.mark.finding("N43")
def test_a_store_and_its_logs_belong_to_their_owner(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/store.db") as once:
        once.run("key", lambda: 1)
        assert modes(tmp_path) == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


@pytest.mark.finding("N43")
def test_people_and_warehouses_belong_to_their_owner(tmp_path: Path) -> None:
    with People(f"sqlite:///{tmp_path}/people.db") as people:
        people.find(email="a@example.com")
    open_warehouse(f"sqlite:///{tmp_path}/warehouse.db").close()
    assert set(modes(tmp_path).values()) == {0o600}


def test_a_file_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    file.touch(0o660)
    with Once(f"sqlite:///{file}") as once:
        once.run("key", lambda: 1)
    assert modes(tmp_path)["store.db"] == 0o660


@pytest.mark.finding("N43")
def test_a_link_to_a_database_works_and_its_file_belongs_to_its_owner(tmp_path: Path) -> None:
    volume, folder = tmp_path / "volume", tmp_path / "app"
    volume.mkdir()
    folder.mkdir()
    (folder / "store.db").symlink_to(volume / "data.db")
    for outcome in ("executed", "replayed"):
        with Once(f"sqlite:///{folder}/store.db") as once:
            assert once.outcome("key", lambda: 1).reason == outcome
            assert modes(volume) == {"data.db": 0o600, "data.db-wal": 0o600, "data.db-shm": 0o600}
    with Once(f"sqlite:///{volume}/data.db") as once:
        assert once.outcome("key", lambda: 1).reason == "replayed"
