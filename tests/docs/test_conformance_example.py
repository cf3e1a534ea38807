"""The store in the testing page passes the conformance suite that the page describes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks


def test_the_store_of_the_testing_page_conforms(tmp_path: Path) -> None:
    example = next(
        block
        for block in blocks(ROOT / "docs/howto/testing.md")
        if any("StoreConformance" in line for line in block.lines)
    )
    test = tmp_path / "test_my_store.py"
    test.write_text("from onceward.stores import MemoryStore\n" + "\n".join(example.lines), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "blocking", test.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
