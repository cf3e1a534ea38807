"""How the five systems start: the commands and variables of the deployment page, and errors that say what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.service.__main__ import SYSTEMS
from tests.services.running import ROOT

pytestmark = [pytest.mark.finding("N56")]

PAGE = (ROOT / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
SECRET = "whsec_c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3M="
NOWHERE = "postgresql://app:hidden@127.0.0.1:1/nowhere?connect_timeout=2"
STARTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "documents": (["--store", NOWHERE], {"WEBHOOK_SECRET": SECRET}),
    "fleet": (["--store", NOWHERE], {}),
    "learning": (["--warehouse", NOWHERE], {}),
    "outreach": (["--database", NOWHERE], {"OUTREACH_REPLIES_TOKEN": "t"}),
    "submissions": (["--store", NOWHERE], {"BROKERS": "t=north"}),
}


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def commands_on_the_page() -> list[list[str]]:
    """Return the arguments of `onceward migrate` for systemd and for Kubernetes."""
    [for_systemd] = re.findall(r"ExecStartPre=\S+/onceward (migrate .+)", PAGE)
    [for_kubernetes] = re.findall(r'command: (\["onceward", "migrate".*\])', PAGE)
    return [for_systemd.split(), json.loads(for_kubernetes)[1:]]


@pytest.mark.parametrize("arguments", commands_on_the_page(), ids=["systemd", "kubernetes"])
def test_the_tables_are_created_where_no_terminal_can_confirm(arguments: list[str], tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/records.db"
    done = run(
        str(Path(sys.executable).with_name("onceward")),
        *(store if one == "${STORE}" else one for one in arguments),
        ONCEWARD_STORE_URL=store,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "records.db").exists()


@pytest.mark.parametrize("system", STARTS)
def test_the_page_has_the_variables_of_the_help(system: str) -> None:
    [line] = re.findall(rf"^\| {system} \| (.+) \|$", PAGE, re.MULTILINE)
    [common] = re.findall(r"^\| all \| (.+) \|$", PAGE, re.MULTILINE)
    helped = run("-m", f"examples.{system}", "serve", "--help").stdout
    if system == "submissions":
        helped += run("-m", "examples.submissions", "consume", "--help").stdout
    in_help = {name for name in re.findall(r"\$([A-Z_]+)", helped) if not name.startswith("OUTREACH_")}
    assert set(re.findall(r"`([A-Z_]+)`", line + common)) == in_help


@pytest.mark.parametrize("system", STARTS)
def test_a_database_that_cannot_be_reached_is_an_error_with_a_hint_and_no_traceback(
    system: str, tmp_path: Path
) -> None:
    options, variables = STARTS[system]
    folder = [str(tmp_path)] if system == "documents" else []
    done = run("-m", f"examples.{system}", "serve", *folder, *options, PORT="0", FOLDER=str(tmp_path), **variables)
    assert done.returncode == 1, done.stderr
    assert f"python -m examples.{system}: " in done.stderr
    assert "127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr
    assert "hidden" not in done.stdout + done.stderr


def test_all_systems_are_tested() -> None:
    assert set(STARTS) == set(SYSTEMS)
