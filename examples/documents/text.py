"""The text of a PDF file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from pypdf import PdfReader

from examples.documents.models import Unreadable

LONGEST: Final = 50_000
"""Characters: an invoice is on the first pages, and models are paid by length."""

logging.getLogger("pypdf").setLevel(logging.ERROR)  # it tells of every oddity of a file


def text_of(path: Path) -> str:
    """Its words, in one line: without control characters, and with single spaces."""
    words: list[str] = []
    try:
        with path.open("rb") as file:
            for page in PdfReader(file).pages:
                words += "".join(letter if letter.isprintable() else " " for letter in page.extract_text()).split()
                if sum(map(len, words)) > LONGEST:
                    break
    except OSError:
        raise
    except Exception as error:  # a file that claims to be a PDF may break its reader in any way
        raise Unreadable(f"{path.name} is no PDF that can be read: {error!r}") from error
    return " ".join(words)[:LONGEST]
