"""`onceward runbook`: the runbooks of the installed package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from onceward import errors
from onceward.cli.exit_codes import Exit
from onceward.observe.rules import RULES
from tests.cli.calls import as_json, call, line
from tests.servers.process import missing

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


@pytest.mark.finding("N28")
def test_every_rule_has_a_runbook_in_the_package() -> None:
    listed = call("runbook", "-o", "table").stdout.splitlines()
    assert set(listed) == {rule.name.replace("_", "-") for rule in RULES}
    for name in listed:
        text = call("runbook", name, "-o", "table").stdout
        assert text.startswith(f"{name}\n\n**")
        assert "\n1. " in text
        assert "](" not in text
    assert as_json("runbook") == listed


@pytest.mark.finding("N28")
def test_a_link_is_printed_as_a_command_or_as_the_place_of_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Continue with `onceward runbook claim-errors`." in as_json("runbook", "unknown")["text"]
    assert as_json("runbook", "parked")["text"].endswith("see crashes (docs/howto/crashes.md).")
    monkeypatch.setattr(errors, "DOCS_URL", "https://docs.example/")
    assert "see crashes (https://docs.example/howto/crashes.html)." in as_json("docs", "runbooks#parked")["text"]


@pytest.mark.finding("N28")
def test_a_runbook_may_be_called_by_the_name_of_its_rule() -> None:
    assert as_json("runbook", "old_pending")["name"] == "old-pending"


@pytest.mark.finding("N28")
def test_a_mistyped_name_suggests_the_nearest_runbook() -> None:
    result = call("runbook", "parkd")
    assert result.exit_code == Exit.ABSENT
    assert "did you mean 'parked'?" in line(result)


@pytest.mark.finding("N28")
def test_the_page_in_the_docs_is_the_one_in_the_package() -> None:
    page = ROOT / "docs" / "howto" / "runbooks.md"
    shipped = files("onceward.observe").joinpath("shipped", "runbooks.md").read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == shipped, "copy docs/howto/runbooks.md over it"


@pytest.mark.finding("N28")
def test_a_wheel_prints_its_runbooks(tmp_path: Path) -> None:
    """The command is imported from the wheel itself, so it fails if the build left a file out."""
    if not UV.exists():
        missing("uv", "make .venv/.dev-installed")
    build = [str(UV), "build", "--offline", "--wheel", "--python", sys.executable, "--out-dir", str(tmp_path)]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    if "network" in built.stderr:
        missing("hatchling", "make clean, then make .venv/.dev-installed, which puts it into the cache of uv")
    assert built.returncode == 0, built.stderr
    [wheel] = tmp_path.glob("*.whl")
    code = "import onceward.cli.__main__ as command; print(command.__file__)"

    def from_wheel(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(wheel)}
        words = (sys.executable, *words)
        ran = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert from_wheel("-c", code).startswith(str(wheel))
    printed = json.loads(from_wheel("-m", "onceward.cli", "runbook", "parked", "-o", "json"))
    assert printed == as_json("runbook", "parked")
