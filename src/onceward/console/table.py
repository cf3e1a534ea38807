"""A table: the same rows as HTML, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from .text_format import iso_time

Kind = Literal["text", "key", "state", "time", "number", "code", "scope", "duration", "flag", "share", "prose"]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last: full-width


@dataclass(frozen=True)
class Column:
    """One column.

    - `name`: the field of the row, and its name in CSV.
    - `label`: the heading.
    - `kind`: how its values are shown, such as "time" or "number".
    - `link`: the field of the row that holds the address to which the cell leads.
    - `narrow`: whether it is shown at phone width.
    """

    name: str
    label: str
    kind: Kind = "text"
    link: str = ""
    narrow: bool = True


@dataclass(frozen=True)
class Empty:
    """What a page shows if there are no rows.

    - `title`: says that there are none.
    - `text`: what would be listed here, and how rows are created.
    - `code`: an example, shown as code.
    """

    title: str
    text: str
    code: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of plain values. Fields that no column shows (links, ids) are left out of CSV, and kept in JSON.

    - `name`: the name of the list in JSON, and of the CSV file.
    - `columns`, `rows`: what is shown. A row maps names of fields to values.
    - `empty`: what is shown if there are no rows.
    - `next`: the cursor of the next page.
    - `now`: the store's time, which relative times are counted from.
    - `selectable`: the field that identifies a row for bulk actions. Empty: rows cannot be selected.
    - `extra`: further fields of the JSON document.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    empty: Empty
    next: str | None = None
    now: datetime | None = None
    selectable: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> str:
        """Return the rows, the cursor of the next page and the extra fields as a JSON document."""
        rows = [{name: self._plain(value) for name, value in row.items() if name != "href"} for row in self.rows]
        document = {self.name: rows, "next": self.next, **self.extra}
        return json.dumps(document, default=str, indent=1) + "\n"

    def as_csv(self) -> str:
        """Return the rows as CSV. A text that a spreadsheet would run as a formula gets a leading apostrophe."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([column.name for column in self.columns])
        for row in self.rows:
            writer.writerow([_cell(self._plain(row.get(column.name))) for column in self.columns])
        return text.getvalue()

    def _plain(self, value: Any) -> Any:
        return iso_time(value) if isinstance(value, datetime) else value


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA_STARTS) else value
    if value is None:
        return ""
    return value if isinstance(value, bool | int | float) else _cell(json.dumps(value, default=str))
