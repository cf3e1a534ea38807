"""Translate Firestore errors into Onceward errors that say whether to retry or what to fix."""

from __future__ import annotations

from typing import Final

from onceward.errors import ConfigurationError, OncewardError, StoreBroken, StoreNotSetUp, StoreUnavailable

CONFLICT_CODES: Final = frozenset({"ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED", "NOT_FOUND"})
"""For a write: another writer was faster, and nothing was written."""

AMBIGUOUS_CODES: Final = frozenset({
    "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED", "RESOURCE_EXHAUSTED",
})  # fmt: skip
"""The request may or may not have been executed; retrying may help."""

RETRY_HINT: Final = "retry the call"
ROLE_HINT: Final = "grant this service account the role roles/datastore.user, see docs/howto/firestore.md"


class FirestoreError(Exception):
    """The server returned an error or did not reply. `code` is the name of the gRPC status."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def error_for(error: FirestoreError, name: str) -> OncewardError:
    """Return a new Onceward error."""
    details = f"({error.code}: {error.text[:300]})"
    match error.code:
        case "DEADLINE_EXCEEDED" | "CANCELLED":
            return StoreUnavailable(f"{name}: no reply within the call's timeout {details}", hint=RETRY_HINT)
        case "RESOURCE_EXHAUSTED":
            return StoreUnavailable(
                f"{name}: a quota is exhausted, or writes are too frequent {details}", hint=RETRY_HINT
            )
        case "ABORTED" | "FAILED_PRECONDITION" | "ALREADY_EXISTS" if "index" not in error.text:
            return StoreUnavailable(
                f"{name}: other writers keep changing the same documents {details}", hint=RETRY_HINT
            )
        case "UNAVAILABLE" | "INTERNAL" | "UNKNOWN":
            return StoreUnavailable(
                f"{name}: the server cannot be reached {details}", hint=f"is the network up? {RETRY_HINT}"
            )
        case "NOT_FOUND":
            return StoreNotSetUp(
                f"{name}: the project or database does not exist {details}",
                hint="create it with: gcloud firestore databases create --database=NAME --location=REGION",
            )
        case "PERMISSION_DENIED" | "UNAUTHENTICATED":
            return StoreNotSetUp(f"{name}: these credentials may not read and write here {details}", hint=ROLE_HINT)
        case "FAILED_PRECONDITION":
            return StoreNotSetUp(f"{name}: it lacks an index {details}", hint="create it as the server's message says")
        case "INVALID_ARGUMENT":
            return ConfigurationError(f"{name}: the server rejected the write as invalid {details}")
        case _:
            return StoreBroken(f"{name}: the server returned an error {details}", hint="see the server's message")
