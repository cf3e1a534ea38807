"""Create invoices as PDF files. The same lines give the same bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

COMPANIES: Final = ("Acme Ltd", "Globex GmbH", "Initech", "Umbrella & Sons", "../../etc/passwd", "Hooli " * 60)
BLOCKED: Final = "Blocked Ltd"
"""A company whose rows the warehouse rejects."""


def lines(number: int, dice: random.Random) -> list[str]:
    """Return the lines of an invoice.

    Some have German dates or no total, which the cheap model gets wrong. Some cannot be read at all.
    """
    company = BLOCKED if number % 17 == 5 else dice.choice(COMPANIES).strip()
    day = dice.randint(10, 28)
    items = [dice.randint(100, 90_000) for _ in range(3)]
    printed = [f"Invoice R-{number:05}", f"Company {company}"] if number % 19 != 7 else ["Company", "a torn page"]
    printed.append(f"Date {day}.03.2026" if number % 3 == 0 else f"Date 2026-03-{day}")
    printed += [f"Item {cents}" for cents in items]
    return printed if number % 7 == 3 else [*printed, f"Total {sum(items)}"]


def pdf(printed: Sequence[str]) -> bytes:
    """Return a PDF of one page with these lines."""
    escaped = (
        line.encode("latin-1").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)") for line in printed
    )
    stream = b"BT /F 12 Tf 14 TL 50 800 Td " + b" ".join(b"(%s) Tj T*" % line for line in escaped) + b" ET"
    parts = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 /MediaBox [0 0 595 842] >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    )
    written = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, part in enumerate(parts, 1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(parts) + 1)
    written += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return bytes(written + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(parts) + 1, table))
