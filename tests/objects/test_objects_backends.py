"""Backends that are down, refuse or are named wrongly; and what is specific to a folder and Google Cloud Storage."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from onceward import ConfigurationError, StoreUnavailable
from onceward.errors import StoreBroken, StoreNotSetUp
from onceward.objects import Objects, folder, open_objects
from tests.objects.backends import KEYS, opened, server, url_of_kind
from tests.objects.contents import OTHER, PDF, large
from tests.objects.gcs_stand_in import Storage
from tests.servers.proxy import LOSE_REPLY, Proxy

# ── Google Cloud Storage: what is asked ──


def test_on_google_cloud_storage_every_request_that_gives_a_name_carries_the_condition() -> None:
    with Storage() as storage:
        objects = open_objects("gs://bucket/prefix", **storage.settings)
        small = objects.put("a", PDF)
        assert (small.status, objects.put("a", PDF).status) == ("created", "same")
        assert objects.put("a", OTHER, if_other="return").status == "other"
        assert (objects.put("b", large()).status, objects.put("b", large()).status) == ("created", "same")
        assert set(storage.objects) == {"prefix/a", "prefix/b"}, "nothing staged is left"
        assert storage.objects["prefix/a"] == PDF
        assert storage.conditions == [("put", "0")] * 3 + [("copy", "0")] * 2
        assert objects.delete("a", small.content) == "deleted"
        assert set(storage.objects) == {"prefix/b"}


# ── trouble ──


@pytest.mark.fault("F53")
def test_a_create_whose_answer_is_lost_is_found_by_its_content(tmp_path: Path) -> None:
    url = url_of_kind("s3", tmp_path)
    with Proxy("127.0.0.1", server().port) as proxy:
        objects = opened(url, endpoint=f"http://127.0.0.1:{proxy.port}")
        proxy.next(LOSE_REPLY)
        try:
            status = objects.put("a", PDF).status
        except StoreUnavailable:  # the driver does not repeat requests that it considers unsafe
            status = objects.put("a", PDF).status
        assert status == "same"
        assert objects.read("a") == PDF


def test_a_bucket_that_is_not_there_says_so() -> None:
    objects = open_objects("s3://nowhere/x", endpoint=server().url, **KEYS)
    with pytest.raises(StoreNotSetUp, match="s3://nowhere/x: the bucket does not exist"):
        objects.put("a", PDF)


@pytest.mark.fault("F50")
def test_a_server_that_is_away_says_so() -> None:
    objects = open_objects("s3://b/x", endpoint="http://127.0.0.1:9", timeout="2s", **KEYS)
    with pytest.raises(StoreUnavailable, match="nothing is ever overwritten"):
        objects.put("a", PDF)


NOWHERE = ["file://", "file:///", "file://host/a", "s3://", "s3://k@b/x", "s3://b/../x", "gs://", "s3://[", "file://["]


@pytest.mark.parametrize("url", NOWHERE)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_objects(url)


def test_a_choice_that_is_not_there_is_refused(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    with pytest.raises(ConfigurationError, match="has no settings"):
        open_objects(url, region="x")
    with pytest.raises(ConfigurationError, match="if_other"):
        open_objects(url).put("a", PDF, if_other="overwrite")  # type: ignore[arg-type]


# ── a folder's own ──


def test_a_name_below_a_file_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    objects = open_objects(tmp_path.as_uri())
    objects.put("a", PDF)
    with pytest.raises(StoreBroken, match="a file and a folder have the same name"):
        objects.put("a/b", PDF)
    assert objects.content("a/b") is None
    assert objects.read("a") == PDF


def test_a_file_where_the_folder_should_be_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreBroken, match="a file and a folder have the same name"):
        open_objects((tmp_path / "file").as_uri())


def test_it_names_itself(tmp_path: Path) -> None:
    objects: Objects = open_objects(f"{tmp_path.as_uri()}/a%20b")
    assert repr(objects) == f"<Objects on {tmp_path.as_uri()}/a%20b>"
    assert (tmp_path / "a b").is_dir()


def test_an_object_reported_as_existing_is_as_durable_as_a_created_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that created it may have been killed between the link and the sync of its folder."""
    objects = open_objects(tmp_path.as_uri())
    objects.put("2026/a", b"1")
    synced: list[Path] = []
    monkeypatch.setattr(folder, "_sync", synced.append)
    assert objects.put("2026/a", b"1").status == "same"
    assert tmp_path / "2026" in synced


@pytest.mark.finding("N40")
@pytest.mark.parametrize("link", ["a", "folder"])
def test_no_link_is_followed_out_of_the_folder(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / "b"
    secret.write_bytes(b"secret")
    root = tmp_path / "root"
    objects = open_objects(root.as_uri())
    objects.put("real", b"content")
    (root / link).symlink_to(secret if link == "a" else outside)
    name = "a" if link == "a" else "folder/b"
    for call in (
        lambda: objects.read(name),
        lambda: objects.put(name, b"mine"),
        lambda: objects.put("folder/new" if link == "folder" else name, b"mine"),
        lambda: objects.delete(name, "sha256:0"),
    ):
        with pytest.raises(StoreBroken, match="symbolic link"):
            call()
    assert [found.name for found in outside.iterdir()] == ["b"]
    assert secret.read_bytes() == b"secret"
    assert list(objects.names()) == ["real"]


@pytest.mark.finding("N43")
def test_an_object_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        open_objects((tmp_path / "new/root").as_uri()).put("folder/a", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new/root/folder/a").stat().st_mode) == 0o600
    for made in ("new", "new/root", "new/root/folder"):
        assert stat.S_IMODE((tmp_path / made).stat().st_mode) == 0o700


def test_a_link_that_leads_nowhere_is_said_to_be_one(tmp_path: Path) -> None:
    objects = open_objects(tmp_path.as_uri())
    (tmp_path / "a").symlink_to(tmp_path / "nothing")
    with pytest.raises(StoreBroken, match="symbolic link"):
        objects.put("a", b"1")
    assert (tmp_path / "a").is_symlink()


def test_a_folder_that_cannot_be_written_to_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    objects = open_objects(tmp_path.as_uri())
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreNotSetUp, match="permission denied"):
        objects.put("a", b"1")
