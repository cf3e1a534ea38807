"""Every Python block of the README and the docs runs and prints the output that the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, expected_output, files, name_of, pages, program
from tests.servers import bigquery
from tests.servers.firestore import EMULATOR
from tests.servers.firestore import shared as firestore
from tests.servers.postgres import new_database
from tests.servers.redis import shared

WITH_CODE = [page for page in pages() if program(page)]


@pytest.mark.timeout(bigquery.INSTALLING)  # the first test that needs the emulator installs it
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_examples_of_a_page_run_and_print_what_it_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    stem = page.stem.lower()
    script = tmp_path / f"{stem}{'_page' if find_spec(stem) else ''}.py"
    script.write_text(program(page), encoding="utf-8")
    for name, text in files(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "ONCEWARD_STORE_URL"}
    if "DATABASE_URL" in program(page):
        environment["DATABASE_URL"] = new_database(
            request.getfixturevalue("postgres"), f"docs_{page.stem.replace('-', '_')}"
        )
    if "REDIS_URL" in program(page):
        environment["REDIS_URL"] = shared().url()
    if EMULATOR in program(page):
        environment[EMULATOR] = firestore()
    if "BIGQUERY_URL" in program(page):
        environment["BIGQUERY_URL"] = f"bigquery://onceward-test/docs?endpoint={bigquery.shared().endpoint}"
    warnings = "ignore" if page.parent.name == "migrate" else "error"  # those pages run code of other packages
    run = subprocess.run(
        [sys.executable, "-W", warnings, "-X", "utf8", script.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, f"{name_of(page)}: the line numbers are those of the page\n{run.stderr}"
    assert run.stdout.splitlines() == expected_output(page)


def test_the_first_screen_shows_the_problem_the_snippet_the_promises_and_two_commands() -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Install")[0]
    snippet = blocks(ROOT / "README.md")[0]
    assert snippet.language == "python"
    assert len([line for line in snippet.lines if line.strip()]) == 8
    assert expected_output(ROOT / "README.md")[:2] == ["executed", "replayed"]
    assert "make demo" in first_screen
    assert "make test" in first_screen
    assert first_screen.count("\n") < 50, "that is more than a screen"


def test_exactly_once_is_only_said_of_what_one_transaction_holds() -> None:
    """The table of guarantees allows it only for rows in the database where the record lives."""
    for page in pages():
        for paragraph in re.split(r"\n\s*\n|\n(?=\|)|\n(?=- )", page.read_text(encoding="utf-8")):
            if re.search(r"exactly[ \n-]once", paragraph, re.IGNORECASE):
                assert "transaction" in paragraph, f"{name_of(page)} promises too much: {paragraph}"


LINKED = [
    *pages(),
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_every_link_leads_to_a_file_that_is_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


def test_a_page_that_says_something_else_than_it_prints_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nprint(1)  # → 2\n```\n\n```text\nmore\n```\n", encoding="utf-8")
    assert program(page) == "\n\n\nprint(1)  # → 2\n"
    assert expected_output(page) == ["2", "more"]
