"""One key: its life, its policy in words, its result, and what can be done with it."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec.structs import asdict, replace
from starlette.responses import Response

from onceward.administration import Action, Preview, Target
from onceward.administration.actions import ACTIONS, DESCRIPTIONS
from onceward.console.access import level_of
from onceward.console.page import Page
from onceward.console.table import Column, Empty, Table
from onceward.console.visit import Visit, whole_number
from onceward.protocol.record import RecordState

PAGE = Page("keys", "Key")
ID = re.compile("[0-9a-f]{64}")
EMPTY = Empty("No events", "The record has no history.")
LABELS = {
    "retry": "Retry",
    "release": "Release",
    "resolve-applied": "Resolve: it was applied",
    "resolve-not-applied": "Resolve: it was not applied",
    "resolve-abandon": "Resolve: abandon it",
    "resolve-undo": "Undo the saga",
    "forget": "Forget",
}


@PAGE.get("/{id}")
async def show(visit: Visit) -> Response:
    """Show everything about one record. Its result and input are sent only if the address asks for them."""
    id = visit.path["id"].lower()
    shown = visit.filter("show")
    if not ID.fullmatch(id):
        return visit.render("not_found.html", 404)
    detail = await visit.call(visit.admin.key(id, values=shown in ("result", "input")))
    if detail is None:
        return visit.render("not_found.html", 404)
    columns = [Column("at", "When", "time"), Column("what", "What"), Column("text", "Text"), Column("who", "Who")]
    rows = [asdict(one) for one in detail.timeline]
    extra = {"id": id, "key": detail.row.key, "gaps": detail.gaps}
    table = Table("events", columns, rows, EMPTY, now=detail.now, extra=extra)
    return visit.table(
        "key.html",
        table,
        detail=detail,
        row=detail.row,
        shown=shown,
        as_json=as_json,
        labels=LABELS,
        descriptions=DESCRIPTIONS,
        level_of=level_of,
    )


def as_json(value: Any, *, ascii_only: bool = False) -> str:
    """Return a stored value as indented JSON. Large integers keep all digits."""
    return json.dumps(value, indent=2, ensure_ascii=ascii_only, default=str)


@PAGE.post("/{id}/act")
async def act(visit: Visit) -> Response:
    """Change the record, if it is still as the form showed it."""
    if not ID.fullmatch(visit.path["id"]):
        return visit.render("not_found.html", 404)
    action, page = requested_action(visit), f"keys/{visit.path['id']}"
    if isinstance(action, str):
        return visit.back(page, problem=action)
    refusal = refused(visit, action)
    if refusal is not None:
        return refusal
    target = target_of(visit)
    if target is None:
        return visit.back(
            page, problem="the form is not complete, so nothing was changed; reload the page and try again"
        )
    preview = Preview(action, [target], [])
    applied = await visit.call(visit.admin.apply(preview, why=visit.form.get("why", "").strip()))
    key = visit.form.get("key", "")
    if applied.refused:
        return visit.back(page, problem=f"{key}: nothing was changed, because {applied.refused[0].reason}")
    return visit.back(page, done=f"{key}: {LABELS[action.name].lower()}, done. It is in the audit trail.")


def refused(visit: Visit, action: Action) -> Response | None:
    """Return the page that refuses the action; None if the visitor may perform it."""
    if visit.access.allows(level_of(action)):
        return None
    needed = level_of(action).name.lower()
    return visit.render("refused.html", 403, reason=f"This needs the access level {needed!r}. Nothing was changed.")


def target_of(visit: Visit) -> Target | None:
    """Return the record as the form showed it; None without its state and token. The store compares both again."""
    state, token = visit.form.get("state", ""), whole_number(visit.form.get("token", ""), -1)
    if state not in set(RecordState) or token < 0:
        return None
    return Target(bytes.fromhex(visit.path["id"]), token, RecordState(state), "", visit.form.get("key", ""))


def requested_action(visit: Visit) -> Action | str:
    """Return the action of the form, or what is wrong with it."""
    action = ACTIONS.get(visit.form.get("action", ""))
    if action is None:
        return "there is no such action"
    if not visit.form.get("why", "").strip():
        return "a reason is needed for the audit trail; nothing was changed"
    if visit.form.get("force") == "1":
        action = replace(action, force=True)
    if action.finding != "applied":
        return action
    try:
        result = json.loads(visit.form.get("result", "").strip() or "null")
    except (ValueError, RecursionError) as error:
        return f"the result is not JSON ({error}); nothing was changed"
    window = visit.form.get("window", "").strip()
    return replace(action, result=result, window=window or action.window)
