"""Actions on many records: first a preview with counts and reasons, then exactly the records that it showed."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.responses import Response

from onceward.administration import Action, Preview
from onceward.administration.actions import ACTIONS, DESCRIPTIONS
from onceward.administration.bulk import decode_preview
from onceward.console.page import Page
from onceward.console.pages.key import LABELS, refused
from onceward.console.pages.keys import filter_of
from onceward.console.visit import Visit, whole_number
from onceward.errors import ConfigurationError

PAGE = Page("bulk", "Change many records")
STEP = 100  # records per request: the page shows progress between the requests
SHOWN = 50


@PAGE.post("/preview")
async def preview(visit: Visit) -> Response:
    """Show what the action would change. Nothing is changed."""
    action = ACTIONS.get(visit.form.get("action", ""))
    if action is None:
        return visit.back("keys", problem="there is no such action")
    refusal = refused(visit, action)
    if refusal is not None:
        return refusal
    found = await visit.call(_make_preview(visit, action))
    return visit.render(
        "bulk_preview.html",
        preview=found,
        encoded=found.encode(),
        label=LABELS[action.name],
        description=DESCRIPTIONS[action.name],
        back=visit.form.get("back", ""),
        shown=SHOWN,
    )


async def _make_preview(visit: Visit, action: Action) -> Preview:
    group, ids = visit.form.get("group", ""), visit.form.getlist("id")
    if group:
        return await visit.admin.preview(action, group=group)
    if ids:
        return await visit.admin.preview(action, ids=ids)
    chosen = {name.removeprefix("filter-"): text for name, text in visit.form.items() if name.startswith("filter-")}
    if not any(chosen.values()):
        raise ConfigurationError("no records are selected", hint="select rows, or set a filter; nothing was changed")
    return await visit.admin.preview(action, wanted=filter_of(chosen))


@PAGE.post("/apply")
async def apply(visit: Visit) -> Response:
    """Change the next records of the preview. The page continues by itself until all are processed."""
    asked = decode_preview(visit.form.get("preview", ""))
    refusal = refused(visit, asked.action)
    if refusal is not None:
        return refusal
    why = visit.form.get("why", "").strip()
    back = visit.form.get("back", "")
    if not why:
        return visit.back("keys", problem="a reason is needed for the audit trail; nothing was changed")
    now, later = asked.targets[:STEP], asked.targets[STEP:]
    applied = await visit.call(visit.admin.apply(replace(asked, targets=now), why=why))
    done = whole_number(visit.form.get("done", ""), 0) + len(applied.done)
    left = whole_number(visit.form.get("left_alone", ""), 0) + len(applied.refused)
    reasons = [*visit.form.getlist("reason"), *applied.reasons]
    if not later:
        text = f"{LABELS[asked.action.name]}: {done:,} done" if done else ""
        more = "; ".join(dict.fromkeys(reasons))
        return visit.back("keys", done=text, problem=f"{left:,} left alone: {more}" if left else "")
    return visit.render(
        "bulk_progress.html",
        label=LABELS[asked.action.name],
        rest=replace(asked, targets=later).encode(),
        done=done,
        left_alone=left,
        total=done + left + len(later),
        reasons=list(dict.fromkeys(reasons)),
        why=why,
        back=back,
    )
