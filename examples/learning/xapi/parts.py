"""The shapes of a statement and its parts, by xAPI 1.0.3 and 2.0.0.

They are msgspec Structs, so that most of the validation runs in C: unknown properties, null outside extensions, and
numbers instead of texts are rejected.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_LANGUAGE = r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*"
_WEEKS = r"P\d+(?:\.\d+)?W"  # ISO 8601 does not combine weeks with other units
_DURATION = r"P(?=[\dT])(?:\d+(?:\.\d+)?Y)?(?:\d+(?:\.\d+)?M)?(?:\d+(?:\.\d+)?D)?"
_CLOCK = r"(?:T(?=\d)(?:\d+(?:\.\d+)?H)?(?:\d+(?:\.\d+)?M)?(?:\d+(?:\.\d+)?S)?)?"
_DAY = r"\d{4}-\d{2}-\d{2}"
_TIME = r"\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_ZONE = r"(?:[Zz]|(?!-00:?(?:00)?\Z)[+-]\d{2}(?::?\d{2})?)?"


def _format(pattern: str) -> Meta:
    return Meta(pattern=rf"\A(?:{pattern})\Z")


Uuid = Annotated[str, _format(_UUID)]
Iri = Annotated[str, _format(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")]
Mbox = Annotated[str, _format(r"mailto:[^\s@<>]+@[^\s@<>]+")]
Sha1 = Annotated[str, _format(r"[0-9a-fA-F]{40}")]
Sha2 = Annotated[str, _format(r"[0-9a-fA-F]{56}|[0-9a-fA-F]{64}|[0-9a-fA-F]{96}|[0-9a-fA-F]{128}")]
Language = Annotated[str, _format(_LANGUAGE)]
Timestamp = Annotated[str, _format(rf"{_DAY}[Tt ]{_TIME}{_ZONE}")]
Duration = Annotated[str, _format(f"{_WEEKS}|{_DURATION}{_CLOCK}")]
Version = Annotated[str, _format(r"(?:1\.0|2\.0)(?:\.\d+)?")]
MediaType = Annotated[str, _format(r"[^\s/;]+/[^\s/;]+(?:\s*;.*)?")]
Texts = dict[Language, str]
Extensions = dict[Iri, Any]
Number = int | float
RelevantTypes = Annotated[list[Iri], Meta(min_length=1)]
Anyone = dict[str, Any]
"""An Agent or a Group, depending on its objectType."""


class Shape(Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """An object with exactly these properties."""


class Account(Shape, frozen=True):
    """A user account of another system."""

    home_page: Iri
    name: str


class Agent(Shape, frozen=True):
    """A person or system with exactly one identifier."""

    object_type: Literal["Agent"] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    mbox: Mbox | UnsetType = UNSET
    mbox_sha1sum: Sha1 | UnsetType = field(default=UNSET, name="mbox_sha1sum")
    openid: Iri | UnsetType = UNSET
    account: Account | UnsetType = UNSET


class Group(Shape, frozen=True):
    """Several agents. Without an identifier it is anonymous and defined by its members."""

    object_type: Literal["Group"]
    name: str | UnsetType = UNSET
    member: list[Agent] | UnsetType = UNSET
    mbox: Mbox | UnsetType = UNSET
    mbox_sha1sum: Sha1 | UnsetType = field(default=UNSET, name="mbox_sha1sum")
    openid: Iri | UnsetType = UNSET
    account: Account | UnsetType = UNSET


class Verb(Shape, frozen=True):
    """What was done. The IRI identifies it; the texts are for display."""

    id: Iri
    display: Texts | UnsetType = UNSET


class Component(Shape, frozen=True):
    """A component of an interaction: a choice or a step."""

    id: str
    description: Texts | UnsetType = UNSET


Components = list[Component]
Interaction = Literal[
    "true-false",
    "choice",
    "fill-in",
    "long-fill-in",
    "matching",
    "performance",
    "sequencing",
    "likert",
    "numeric",
    "other",
]


class Definition(Shape, frozen=True):
    """The description of an activity. It does not count for equality of statements."""

    name: Texts | UnsetType = UNSET
    description: Texts | UnsetType = UNSET
    type: Iri | UnsetType = UNSET
    more_info: Iri | UnsetType = UNSET
    extensions: Extensions | UnsetType = UNSET
    interaction_type: Interaction | UnsetType = UNSET
    correct_responses_pattern: list[str] | UnsetType = UNSET
    choices: Components | UnsetType = UNSET
    scale: Components | UnsetType = UNSET
    source: Components | UnsetType = UNSET
    target: Components | UnsetType = UNSET
    steps: Components | UnsetType = UNSET


class Activity(Shape, frozen=True):
    """The activity that the actor worked on."""

    id: Iri
    object_type: Literal["Activity"] | UnsetType = UNSET
    definition: Definition | UnsetType = UNSET


class StatementRef(Shape, frozen=True):
    """Another statement, by its id."""

    object_type: Literal["StatementRef"]
    id: Uuid


class Score(Shape, frozen=True):
    """`scaled` from -1 to 1; `raw` from `min` to `max`."""

    scaled: Annotated[float, Meta(ge=-1, le=1)] | UnsetType = UNSET
    raw: Number | UnsetType = UNSET
    min: Number | UnsetType = UNSET
    max: Number | UnsetType = UNSET


class Result(Shape, frozen=True):
    """The result of the activity."""

    score: Score | UnsetType = UNSET
    success: bool | UnsetType = UNSET
    completion: bool | UnsetType = UNSET
    response: str | UnsetType = UNSET
    duration: Duration | UnsetType = UNSET
    extensions: Extensions | UnsetType = UNSET


Activities = list[Activity] | Activity


class ContextActivities(Shape, frozen=True):
    """Related activities."""

    parent: Activities | UnsetType = UNSET
    grouping: Activities | UnsetType = UNSET
    category: Activities | UnsetType = UNSET
    other: Activities | UnsetType = UNSET


class ContextAgent(Shape, frozen=True):
    """Since 2.0.0."""

    object_type: Literal["contextAgent"]
    agent: Agent
    relevant_types: RelevantTypes | UnsetType = UNSET


class ContextGroup(Shape, frozen=True):
    """Since 2.0.0."""

    object_type: Literal["contextGroup"]
    group: Group
    relevant_types: RelevantTypes | UnsetType = UNSET


class Context(Shape, frozen=True):
    """The context of the statement."""

    registration: Uuid | UnsetType = UNSET
    instructor: Anyone | UnsetType = UNSET
    team: Group | UnsetType = UNSET
    context_activities: ContextActivities | UnsetType = UNSET
    context_agents: list[ContextAgent] | UnsetType = UNSET
    context_groups: list[ContextGroup] | UnsetType = UNSET
    revision: str | UnsetType = UNSET
    platform: str | UnsetType = UNSET
    language: Language | UnsetType = UNSET
    statement: StatementRef | UnsetType = UNSET
    extensions: Extensions | UnsetType = UNSET


class Attachment(Shape, frozen=True):
    """The metadata of an attachment. Its data is not part of the statement."""

    usage_type: Iri
    display: Texts
    content_type: MediaType
    length: Annotated[int, Meta(ge=0)]
    sha2: Sha2
    description: Texts | UnsetType = UNSET
    file_url: Iri | UnsetType = UNSET


class SubStatement(Shape, frozen=True):
    """A statement used as the object of another, without the properties that the server sets."""

    object_type: Literal["SubStatement"]
    actor: Anyone
    verb: Verb
    object: Anyone
    result: Result | UnsetType = UNSET
    context: Context | UnsetType = UNSET
    timestamp: Timestamp | UnsetType = UNSET
    attachments: list[Attachment] | UnsetType = UNSET


class Statement(Shape, frozen=True):
    """An actor did something (verb) with something (object)."""

    actor: Anyone
    verb: Verb
    object: Anyone
    id: Uuid | UnsetType = UNSET
    result: Result | UnsetType = UNSET
    context: Context | UnsetType = UNSET
    timestamp: Timestamp | UnsetType = UNSET
    stored: Timestamp | UnsetType = UNSET
    authority: Anyone | UnsetType = UNSET
    version: Version | UnsetType = UNSET
    attachments: list[Attachment] | UnsetType = UNSET
