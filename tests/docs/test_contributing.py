"""The map in CONTRIBUTING.md shows the tree as it is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAP = PAGE.partition("src/onceward/\n")[2].partition("```")[0]
PACKAGE = ROOT / "src" / "onceward"
AT_THE_ROOT = {"__init__.py", "errors.py", "lazy_exports.py", "py.typed", "_version.py"}


def tracked(folder: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return {line.removeprefix(f"{folder}/").partition("/")[0] for line in listed.stdout.splitlines()}


def test_the_map_lists_every_package_and_nothing_else() -> None:
    packages = {name for name in tracked("src/onceward") if (PACKAGE / name).is_dir()}
    assert set(re.findall(r"^  (\w+)/", MAP, re.MULTILINE)) == packages


def test_only_the_public_names_the_errors_and_the_version_are_at_the_root() -> None:
    assert {name for name in tracked("src/onceward") if not (PACKAGE / name).is_dir()} == AT_THE_ROOT


def test_the_map_lists_the_other_folders() -> None:
    assert set(re.findall(r"^(\w+)/", MAP, re.MULTILINE)) == {"tests", "examples", "bench", "docs"}


def test_every_package_says_what_it_is_for_and_which_file_to_read_first() -> None:
    for page in PACKAGE.glob("*/__init__.py"):
        assert "ead `" in page.read_text(encoding="utf-8").partition('"""\n\n')[0], (
            f"{page} names no file to read first"
        )


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_/]+\.(?:py|lua|md|txt))`", PAGE))))
def test_every_file_that_the_page_names_is_there(path: str) -> None:
    places = [ROOT / path, PACKAGE / path, *PACKAGE.glob(f"*/{path}"), *PACKAGE.glob(f"stores/*/{path}")]
    assert any(place.exists() for place in places), f"CONTRIBUTING.md names {path}"
