"""A locale that sorts the letters from z to a, for servers that compare texts by locale."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.servers.process import missing

NAME = "backwards"


def backwards(folder: Path) -> dict[str, str]:
    """Create the locale with the C library's own tool. Return the environment variables of a process that uses it."""
    tool = shutil.which("localedef")
    if tool is None:
        missing("localedef", "it is part of the GNU C library")
    assert tool is not None
    letters = [f"<U{number:04X}>" for number in range(256)]
    bytes_of = [f"{letter} /x{number:02x} {letter}" for number, letter in enumerate(letters)]
    head = ["<code_set_name> BYTES", "<mb_cur_max> 1", "<mb_cur_min> 1", "<comment_char> %", "<escape_char> /"]
    _write(folder / "charmap", [*head, "CHARMAP", *bytes_of, "END CHARMAP"])
    order = ["LC_COLLATE", "order_start forward", *reversed(letters), "order_end", "END LC_COLLATE"]
    _write(folder / "source", ["comment_char %", "escape_char /", *order])
    command = [tool, "--no-archive", "-c", "-i", "source", "-f", "./charmap", f"./{NAME}"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (folder / NAME / "LC_COLLATE").exists(), made.stderr
    return {"LOCPATH": str(folder), "LC_ALL": NAME}


def _write(file: Path, lines: list[str]) -> None:
    file.write_text("\n".join(lines) + "\n")
