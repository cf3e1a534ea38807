"""From what a person types to the record that is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onceward.bridge import run
from onceward.model.readable import MAX_TEXT, escape
from onceward.model.record import Record, State
from onceward.ports import Filter, Store

from .codes import Exit
from .display import cut
from .place import SEARCH, TIMEOUT
from .program import Refusal

PAGE = 200  # records at a time: each may carry a result of a megabyte
MOST_MATCHES = 20
WORK = tuple(state for state in State if state is not State.FREE)
"""FREE records hold no work: they only remember a token."""

_ID = re.compile(r"id:([0-9a-fA-F]{4,64})")
_MARK_AND_DOTS = 9  # what a text that was cut ends in: `…` and eight digits of its id
_WHOLE_ID = 64


def each(store: Store, wanted: Filter) -> Iterator[tuple[Record, int]]:
    """Every record that is wanted, page by page, with the store's time."""
    cursor = None
    while True:
        page = run(store.scan(wanted, cursor=cursor, limit=PAGE, timeout=SEARCH))
        for record in page.records:
            yield record, page.now
        cursor = page.cursor
        if cursor is None:
            return


def find(store: Store, key: str, scope: str | None) -> list[tuple[Record, int]]:
    """Records whose readable key is this text, or whose id begins like this; a few at most."""
    hexadecimal = _ID.fullmatch(key)
    if hexadecimal and len(hexadecimal[1]) == _WHOLE_ID:
        answer = run(store.read([bytes.fromhex(hexadecimal[1])], timeout=TIMEOUT))[0]
        record = answer.record
        fits = record is not None and record.state in WORK and scope in (None, record.scope)
        return [(record, answer.now)] if record is not None and fits else []
    if key.startswith("id:") and not hexadecimal:
        raise Refusal("an id is written id: and 4 to 64 hexadecimal digits, as `onceward ls` shows it", Exit.USAGE)
    text = escape(key)
    wanted = Filter(states=WORK, scope=scope, key=None if hexadecimal or len(text) > MAX_TEXT else text)
    start = hexadecimal[1].lower() if hexadecimal else text[: MAX_TEXT - _MARK_AND_DOTS]
    found = []
    for record, now in each(store, wanted):
        if (record.id.hex() if hexadecimal else record.key).startswith(start):
            found.append((record, now))
            if len(found) > MOST_MATCHES:
                break
    return found


def the_one(store: Store, key: str, scope: str | None) -> tuple[Record, int]:
    """The only record that matches; several are listed, so that the next call can name one."""
    found = find(store, key, scope)
    if not found:
        where = f" in scope {scope}" if scope else ""
        raise Refusal(f"no record for {cut(key, 80)!r}{where} in {store.name}; see onceward ls", Exit.ABSENT)
    if len(found) > 1:
        listed = "; ".join(f"id:{record.id.hex()[:12]} in {record.scope}" for record, _ in found[:MOST_MATCHES])
        more = " and more" if len(found) > MOST_MATCHES else ""
        raise Refusal(f"several records match {cut(key, 80)!r}: {listed}{more}", Exit.SEVERAL)
    return found[0]
