"""Extract the text of a PDF file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from pypdf import PdfReader

from examples.documents.models import Unreadable

MAX_CHARACTERS: Final = 50_000
"""An invoice is on the first pages, and models are billed by length."""

logging.getLogger("pypdf").setLevel(logging.ERROR)  # it logs every irregularity of a file


def text_of(path: Path) -> str:
    """Return the text in one line, without control characters, and with single spaces."""
    words: list[str] = []
    try:
        with path.open("rb") as file:
            for page in PdfReader(file).pages:
                words += "".join(letter if letter.isprintable() else " " for letter in page.extract_text()).split()
                if sum(map(len, words)) > MAX_CHARACTERS:
                    break
    except OSError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise Unreadable(f"{path.name} is not a readable PDF: {error!r}") from error
    return " ".join(words)[:MAX_CHARACTERS]
