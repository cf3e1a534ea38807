"""The project, database and collections of a store, from a URL or from a user's client."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct, field

from onceward.errors import ConfigurationError
from onceward.protocol.secrets import setting_name_without_secrets, url_without_secrets
from onceward.protocol.suggest import closest_name

from .layout import EXPIRY, SHOWN, SHOWN_OF_MARK, SHOWN_OF_STATE, Layout

EMULATOR: Final = "FIRESTORE_EMULATOR_HOST"
DEFAULT_DATABASE: Final = "(default)"
EXAMPLE: Final = "use firestore://project/collection or firestore://project/collection?database=name"
SETTINGS: Final = frozenset({
    "database", "marks", "states", "fields", "notes", "mark_fields", "state_fields", "expiry", "values", "ids",
    "mark_ids",
})  # fmt: skip

_COLLECTION = re.compile(r"[^/\s]{1,500}")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,100}")
_RESERVED = re.compile(r"__.*__")


class FirestoreAddress(Struct, frozen=True):
    """The location of the documents, and the credentials. `marks` and `states` name further collections."""

    project: str
    collection: str
    database: str = DEFAULT_DATABASE
    marks: str = ""
    states: str = ""
    layout: Layout = field(default_factory=Layout)
    entity_ids: bool = False
    """Use the name of an entity as the id of its document."""

    plain_mark_ids: bool = False
    """Use the id of a message or an event as the id of its mark's document."""

    emulator: str | None = None
    endpoint: str | None = None
    credentials: Any = None

    def __post_init__(self) -> None:
        if not _PROJECT.fullmatch(self.project):
            raise ConfigurationError(f"{_shown(self.project)} is not a valid project", hint=EXAMPLE)
        names = (self.collection, self.marks_in, self.states_in, self.audit_in, self.counts_in)
        for name in names:
            if not _COLLECTION.fullmatch(name) or name in {".", ".."} or _RESERVED.fullmatch(name):
                raise ConfigurationError(f"{_shown(name)} is not a valid collection", hint=EXAMPLE)
        if len(set(names)) < len(names):
            raise ConfigurationError("records, marks and states need separate collections", hint=EXAMPLE)

    @property
    def marks_in(self) -> str:
        return self.marks or f"{self.collection}_marks"

    @property
    def states_in(self) -> str:
        return self.states or f"{self.collection}_states"

    @property
    def audit_in(self) -> str:
        return f"{self.collection}_audit"

    @property
    def counts_in(self) -> str:
        return f"{self.collection}_counts"

    @property
    def root(self) -> str:
        """The database's resource name, as used in requests."""
        return f"projects/{self.project}/databases/{self.database}"

    @property
    def name(self) -> str:
        at = "" if self.database == DEFAULT_DATABASE else f"?database={self.database}"
        return f"firestore://{self.project}/{self.collection}{at}"


def parse(url: str) -> FirestoreAddress:
    """Parse `firestore://project/collection?database=name` and the layout settings."""
    parts = urlsplit(url)
    if "@" in url:
        raise ConfigurationError("a Firestore URL has no user and no password", hint=EXAMPLE)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    given = dict(pairs)
    if len(given) < len(pairs):
        raise ConfigurationError(f"{url_without_secrets(url)!r} contains a setting twice", hint=EXAMPLE)
    for name in given:
        if name not in SETTINGS:
            raise ConfigurationError(
                f"a Firestore URL has no setting {setting_name_without_secrets(name, url)!r}",
                hint=f"{closest_name(name, SETTINGS)}the settings are {', '.join(sorted(SETTINGS))}",
            )
    collection = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "firestore" or not parts.netloc or not collection or parts.fragment:
        raise ConfigurationError(f"{url_without_secrets(url)!r} is not a Firestore URL", hint=EXAMPLE)
    return FirestoreAddress(
        unquote(parts.netloc),
        collection,
        given.get("database") or DEFAULT_DATABASE,
        given.get("marks", ""),
        given.get("states", ""),
        _layout(given),
        _flag_setting(given, "ids", "hash", "entity"),
        _flag_setting(given, "mark_ids", "hash", "plain"),
        emulator=os.environ.get(EMULATOR) or None,
    )


def from_client(client: Any, collection: str) -> FirestoreAddress:
    """Return the address that a user's `Client` or `AsyncClient` uses. Calls use Onceward's own channels."""
    database = getattr(client, "_database_string", None)
    if not isinstance(database, str):
        raise ConfigurationError(
            f"{type(client).__qualname__} is not a Firestore client",
            hint="pass google.cloud.firestore.Client or AsyncClient, or a URL",
        )
    _, project, _, name = database.split("/")
    emulator = getattr(client, "_emulator_host", None)
    options = getattr(client, "_client_options", None)
    return FirestoreAddress(
        project,
        collection,
        name,
        emulator=emulator,
        endpoint=getattr(options, "api_endpoint", None),
        credentials=None if emulator else getattr(client, "_credentials", None),
    )


def _layout(given: Mapping[str, str]) -> Layout:
    return Layout(
        fields=_pairs(given["fields"]) if "fields" in given else SHOWN,
        notes=tuple(name for name in given.get("notes", "").split(",") if name),
        marks=_pairs(given["mark_fields"]) if "mark_fields" in given else SHOWN_OF_MARK,
        states=_pairs(given["state_fields"]) if "state_fields" in given else SHOWN_OF_STATE,
        expiry=given.get("expiry", EXPIRY),
        show_values=_flag_setting(given, "values", "hidden", "shown"),
    )


def _pairs(text: str) -> dict[str, str]:
    """Parse `state:status,created_at`. A field without a new name keeps its own."""
    pairs = (part.partition(":") for part in text.split(",") if part)
    return {field_name: shown_name or field_name for field_name, _, shown_name in pairs}


def _flag_setting(given: Mapping[str, str], name: str, no: str, yes: str) -> bool:
    value = given.get(name, no)
    if value not in {no, yes}:
        raise ConfigurationError(f"{name}={value!r} is not allowed", hint=f"use {name}={yes} or {name}={no}")
    return value == yes


def _shown(name: str) -> str:
    """Return the name for messages, unless it looks like a user and a password, which no Firestore URL has."""
    return "this" if "@" in name or ":" in name else repr(name)
