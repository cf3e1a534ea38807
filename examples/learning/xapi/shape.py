"""What a valid statement is: of the right shape, and what goes with what."""

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
    """This is no valid statement; the message says where and why."""


OBJECTS: Final[dict[str, type[Shape]]] = {
    "Activity": Activity,
    "Agent": Agent,
    "Group": Group,
    "StatementRef": StatementRef,
    "SubStatement": SubStatement,
}
for _shape in (Statement, *OBJECTS.values()):
    msgspec.json.Decoder(_shape)  # now: two threads that are the first to convert one would crash the process
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def check(statement: Any, version: str = "2.0.0") -> None:
    """Raises `Invalid` for what is no statement of this version."""
    try:
        if _NUL.search(msgspec.json.encode(statement)):
            raise Invalid("it holds a NUL character, which no warehouse keeps")
        told = msgspec.convert(statement, Statement)
    except (msgspec.ValidationError, RecursionError, TypeError) as error:
        raise Invalid(str(error)) from error
    _check(told, version)
    if told.authority is not UNSET:
        _authority(told.authority)
    if told.verb.id == VOIDED and told.object.get("objectType") != "StatementRef":
        raise Invalid("what voids a statement has a StatementRef as its object - at `$.object`")


def check_agent(agent: Any) -> None:
    """Raises `Invalid` for what is neither an agent nor a group."""
    if not isinstance(agent, dict):
        raise Invalid("an agent is an object")
    _anyone(agent, "$")


def as_returned(statement: dict[str, Any]) -> dict[str, Any]:
    """A valid statement as it is handed out again: of context activities even one alone is a list."""
    given = statement.get("context", {}).get("contextActivities")
    if not given or all(isinstance(one, list) for one in given.values()):
        return statement
    lists = {kind: one if isinstance(one, list) else [one] for kind, one in given.items()}
    return {**statement, "context": {**statement["context"], "contextActivities": lists}}


def _check(told: Statement | SubStatement, version: str) -> None:
    _anyone(told.actor, "$.actor")
    kind = _object(told, version)
    _time(told.timestamp, "$.timestamp")
    if isinstance(told, Statement):
        _time(told.stored, "$.stored")
    if told.result is not UNSET and told.result.score is not UNSET:
        _score(told.result.score)
    if told.context is not UNSET:
        _context(told.context, kind, version)


def _object(told: Statement | SubStatement, version: str) -> str:
    kind = told.object.get("objectType", "Activity")
    shape = OBJECTS.get(kind) if isinstance(kind, str) else None
    if shape is None or (shape is SubStatement and isinstance(told, SubStatement)):
        raise Invalid(f"{kind!r} cannot be the type of an object here - at `$.object.objectType`")
    found = _converted(told.object, shape, "$.object")
    if isinstance(found, Agent | Group):
        _identified(found, "$.object")
    elif isinstance(found, SubStatement):
        _check(found, version)
    elif isinstance(found, Activity) and found.definition is not UNSET:
        _definition(found.definition)
    return str(kind)


def _converted(value: Any, shape: type[Shape], place: str) -> Shape:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise Invalid(
            str(error).replace("`$", f"`{place}", 1) if "`$" in str(error) else f"{error} - at `{place}`"
        ) from error


def _anyone(value: Anyone, place: str) -> None:
    shape = Group if value.get("objectType") == "Group" else Agent
    found = _converted(value, shape, place)
    assert isinstance(found, Agent | Group)  # by its shape
    _identified(found, place)


def _identified(found: Agent | Group, place: str) -> None:
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
        _identified(member, f"{place}.member")


def _authority(value: Anyone) -> None:
    """An agent; or, of OAuth, a group of two."""
    _anyone(value, "$.authority")
    if value.get("objectType") == "Group" and len(value.get("member", ())) != 2:  # an application and its user
        raise Invalid("an authority that is a group has two members - at `$.authority`")


def _definition(definition: Definition) -> None:
    lists = (definition.choices, definition.scale, definition.source, definition.target, definition.steps)
    told = [one for one in lists if one is not UNSET]
    if definition.interaction_type is UNSET and (told or definition.correct_responses_pattern is not UNSET):
        raise Invalid("an interaction has a type - at `$.object.definition.interactionType`")
    for components in told:
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
        raise Invalid("revision and platform are of activities only - at `$.context`")
    if context.instructor is not UNSET:
        _anyone(context.instructor, "$.context.instructor")
    if context.team is not UNSET:
        _identified(context.team, "$.context.team")
    since_2 = (context.context_agents, context.context_groups)
    if version.startswith("1.") and any(one is not UNSET for one in since_2):
        raise Invalid("contextAgents and contextGroups came with 2.0.0 - at `$.context`")
    for agent in context.context_agents or ():
        _identified(agent.agent, "$.context.contextAgents")
    for group in context.context_groups or ():
        _identified(group.group, "$.context.contextGroups")


def _time(text: str | UnsetType, place: str) -> None:
    if text is not UNSET:
        try:
            instant(text)
        except (ValueError, OverflowError) as error:
            raise Invalid(f"{error} - at `{place}`") from error
