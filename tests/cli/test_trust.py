"""What the command trusts: settings files of other users are ignored, and a child gets no password of the store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.cli.run import child_environment
from tests.cli.calls import as_json, call, environment

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONCEWARD_STORE_URL", raising=False)
    file = tmp_path / "onceward.toml"
    file.write_text('store = "sqlite:///theirs.db"\n')
    return file


@pytest.mark.finding("N43")
def test_the_file_that_names_the_store_is_named(settings: Path) -> None:
    result = call("ls")
    assert f"onceward: using the store that {settings} names" in result.stderr
    assert "onceward.toml" not in call("ls", "--store", "sqlite:///mine.db").stderr


@pytest.mark.finding("N43")
def test_a_file_that_everyone_can_change_is_ignored_and_named(settings: Path) -> None:
    settings.chmod(0o666)
    result = call("config", "-o", "json")
    assert (
        f"{settings} is ignored, because everyone can write to it or its owner is neither you nor root" in result.stderr
    )
    assert as_json("config")["store"]["source"] == "default"


@pytest.mark.finding("N43")
@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_ignored(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(settings, 12345, -1)
    assert as_json("config")["store"]["source"] == "default"
    os.chown(settings, 0, -1)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert as_json("config")["store"]["source"] == "onceward.toml", "root may write it for others"


@pytest.mark.finding("N43")
@pytest.mark.parametrize(
    ("url", "passed"),
    [
        ("postgresql://me:hunter2@db/shop", False),
        ("redis://cache/0?password=hunter2", False),
        ("postgresql://me@db/shop", True),
        ("sqlite:///onceward.db", True),
    ],
)
def test_a_command_does_not_inherit_a_store_url_with_a_password(
    url: str, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEWARD_STORE_URL", url)
    assert ("ONCEWARD_STORE_URL" in child_environment(inherit_store=False)) is passed
    assert child_environment(inherit_store=True)["ONCEWARD_STORE_URL"] == url


@pytest.mark.finding("N43")
@pytest.mark.parametrize("flags", [[], ["--inherit-store"]])
def test_the_environment_of_a_real_command(flags: list[str], tmp_path: Path) -> None:
    """The store is given by a flag here, so that no server is needed; the variable is only inherited."""
    secret = {"ONCEWARD_STORE_URL": "postgresql://me:hunter2@db/shop"}
    command = [sys.executable, "-m", "onceward.cli", "run", "--key", "k", "--store", f"sqlite:///{tmp_path}/s.db"]
    done = subprocess.run(
        [*command, *flags, "--", "env"], env={**environment(), **secret}, capture_output=True, text=True, check=True
    )
    assert ("hunter2" in done.stdout) is bool(flags)
    assert "PATH=" in done.stdout
