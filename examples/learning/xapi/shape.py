"""Validates statements: their shape, and the rules across properties."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from .equality import instant
from .parts import (
    Activity,
    Agent,
    Anyone,
    Context,
    Definition,
    Group,
    Score,
    Shape,
    Statement,
    StatementRef,
    SubStatement,
)

VOIDED: Final = "http://adlnet.gov/expapi/verbs/voided"
IDENTIFIERS: Final = ("mbox", "mbox_sha1sum", "openid", "account")


class Invalid(ValueError):
    """The statement is invalid; the message says where and why."""


OBJECTS: Final[dict[str, type[Shape]]] = {
    "Activity": Activity,
    "Agent": Agent,
    "Group": Group,
    "StatementRef": StatementRef,
    "SubStatement": SubStatement,
}
for _shape in (Statement, *OBJECTS.values()):
    msgspec.json.Decoder(_shape)  # at import: two threads that convert one for the first time would crash the process
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def check(statement: Any, version: str = "2.0.0") -> None:
    """Raise `Invalid` if this is not a statement of this version."""
    try:
        if _NUL.search(msgspec.json.encode(statement)):
            raise Invalid("it contains a NUL character, which no warehouse can store")
        parsed = msgspec.convert(statement, Statement)
    except (msgspec.ValidationError, RecursionError, TypeError) as error:
        raise Invalid(str(error)) from error
    _check(parsed, version)
    if parsed.authority is not UNSET:
        _authority(parsed.authority)
    if parsed.verb.id == VOIDED and parsed.object.get("objectType") != "StatementRef":
        raise Invalid("a voiding statement needs a StatementRef as its object - at `$.object`")


def check_agent(agent: Any) -> None:
    """Raise `Invalid` if this is neither an agent nor a group."""
    if not isinstance(agent, dict):
        raise Invalid("an agent must be a JSON object")
    _check_actor(agent, "$")


def as_returned(statement: dict[str, Any]) -> dict[str, Any]:
    """Return a valid statement as the server returns it: a single context activity becomes a list.

    This also applies to the SubStatement that is its object.
    """
    target = statement.get("object", {})
    if target.get("objectType") == "SubStatement":
        statement = {**statement, "object": _with_lists(target)}
    return _with_lists(statement)


def _with_lists(statement: dict[str, Any]) -> dict[str, Any]:
    given = statement.get("context", {}).get("contextActivities")
    if not given or all(isinstance(one, list) for one in given.values()):
        return statement
    lists = {kind: one if isinstance(one, list) else [one] for kind, one in given.items()}
    return {**statement, "context": {**statement["context"], "contextActivities": lists}}


def _check(parsed: Statement | SubStatement, version: str) -> None:
    _check_actor(parsed.actor, "$.actor")
    kind = _object(parsed, version)
    _time(parsed.timestamp, "$.timestamp")
    if isinstance(parsed, Statement):
        _time(parsed.stored, "$.stored")
    if parsed.result is not UNSET and parsed.result.score is not UNSET:
        _score(parsed.result.score)
    if parsed.context is not UNSET:
        _context(parsed.context, kind, version)


def _object(parsed: Statement | SubStatement, version: str) -> str:
    kind = parsed.object.get("objectType", "Activity")
    shape = OBJECTS.get(kind) if isinstance(kind, str) else None
    if shape is None or (shape is SubStatement and isinstance(parsed, SubStatement)):
        raise Invalid(f"{kind!r} is not an allowed object type - at `$.object.objectType`")
    found = _convert(parsed.object, shape, "$.object")
    if isinstance(found, Agent | Group):
        _check_identifiers(found, "$.object")
    elif isinstance(found, SubStatement):
        _check(found, version)
    elif isinstance(found, Activity) and found.definition is not UNSET:
        _definition(found.definition)
    return str(kind)


def _convert(value: Any, shape: type[Shape], place: str) -> Shape:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise Invalid(
            str(error).replace("`$", f"`{place}", 1) if "`$" in str(error) else f"{error} - at `{place}`"
        ) from error


def _check_actor(value: Anyone, place: str) -> None:
    shape = Group if value.get("objectType") == "Group" else Agent
    found = _convert(value, shape, place)
    assert isinstance(found, Agent | Group)  # by its shape
    _check_identifiers(found, place)


def _check_identifiers(found: Agent | Group, place: str) -> None:
    count = sum(getattr(found, name) is not UNSET for name in IDENTIFIERS)
    if isinstance(found, Agent):
        if count != 1:
            raise Invalid(f"an agent has exactly one of {', '.join(IDENTIFIERS)}, not {count} - at `{place}`")
        return
    if count > 1:
        raise Invalid(f"a group has at most one of {', '.join(IDENTIFIERS)} - at `{place}`")
    if not count and found.member is UNSET:
        raise Invalid(f"a group without an identifier lists its members - at `{place}`")
    for member in found.member or ():
        _check_identifiers(member, f"{place}.member")


def _authority(value: Anyone) -> None:
    """Check an authority: an agent, or, for OAuth, an anonymous group of two: an application and its user."""
    _check_actor(value, "$.authority")
    if value.get("objectType") != "Group":
        return
    if len(value.get("member", ())) != 2:
        raise Invalid("an authority that is a group has two members - at `$.authority`")
    if any(name in value for name in IDENTIFIERS):
        raise Invalid("an authority that is a group has no identifier of its own - at `$.authority`")
    if not any("account" in member for member in value["member"]):
        raise Invalid("one member of an authority is an application, known by its account - at `$.authority.member`")


def _definition(definition: Definition) -> None:
    lists = (definition.choices, definition.scale, definition.source, definition.target, definition.steps)
    given = [one for one in lists if one is not UNSET]
    if definition.interaction_type is UNSET and (given or definition.correct_responses_pattern is not UNSET):
        raise Invalid("an interaction has a type - at `$.object.definition.interactionType`")
    for components in given:
        if len({one.id for one in components}) < len(components):
            raise Invalid("two components of one list have the same id - at `$.object.definition`")


def _score(score: Score) -> None:
    least, most, raw = score.min, score.max, score.raw
    if least is not UNSET and most is not UNSET and least >= most:
        raise Invalid("min is not less than max - at `$.result.score`")
    if raw is not UNSET and ((least is not UNSET and raw < least) or (most is not UNSET and raw > most)):
        raise Invalid("raw is not between min and max - at `$.result.score`")


def _context(context: Context, kind: str, version: str) -> None:
    if kind != "Activity" and (context.revision is not UNSET or context.platform is not UNSET):
        raise Invalid("revision and platform are allowed for activities only - at `$.context`")
    if context.instructor is not UNSET:
        _check_actor(context.instructor, "$.context.instructor")
    if context.team is not UNSET:
        _check_identifiers(context.team, "$.context.team")
    since_2 = (context.context_agents, context.context_groups)
    if version.startswith("1.") and any(one is not UNSET for one in since_2):
        raise Invalid("contextAgents and contextGroups need version 2.0.0 - at `$.context`")
    for agent in context.context_agents or ():
        _check_identifiers(agent.agent, "$.context.contextAgents")
    for group in context.context_groups or ():
        _check_identifiers(group.group, "$.context.contextGroups")


def _time(text: str | UnsetType, place: str) -> None:
    if text is not UNSET:
        try:
            instant(text)
        except (ValueError, OverflowError) as error:
            raise Invalid(f"{error} - at `{place}`") from error
