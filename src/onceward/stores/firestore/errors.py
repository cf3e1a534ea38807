"""What Firestore's refusals mean to somebody who only wants to know whether to wait or to act."""

from __future__ import annotations

from typing import Final

from onceward.errors import ConfigurationError, OncewardError, StoreBroken, StoreNotSetUp, StoreUnavailable

RACED: Final = frozenset({"ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED", "NOT_FOUND"})
"""Of a write: somebody else was quicker, and nothing was written."""

UNSURE: Final = frozenset({
    "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED", "RESOURCE_EXHAUSTED",
})  # fmt: skip
"""Perhaps it was done, perhaps not; it may help to ask again."""

AGAIN: Final = "the same call may be repeated"
ROLE: Final = "give this service account the role roles/datastore.user, see docs/howto/firestore.md"


class FirestoreRefused(Exception):
    """The server said no, or did not answer. `code` is gRPC's word for it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def explain(error: FirestoreRefused, name: str) -> OncewardError:
    """A fresh error of ours."""
    said = f"({error.code}: {error.text[:300]})"
    match error.code:
        case "DEADLINE_EXCEEDED" | "CANCELLED":
            return StoreUnavailable(f"{name}: no answer in the time that this call has {said}", hint=AGAIN)
        case "RESOURCE_EXHAUSTED":
            return StoreUnavailable(f"{name}: a quota is used up, or writes come too fast {said}", hint=AGAIN)
        case "ABORTED" | "FAILED_PRECONDITION" | "ALREADY_EXISTS" if "index" not in error.text:
            return StoreUnavailable(f"{name}: others write to the same documents all the time {said}", hint=AGAIN)
        case "UNAVAILABLE" | "INTERNAL" | "UNKNOWN":
            return StoreUnavailable(f"{name}: it cannot be reached {said}", hint=f"is the network up? {AGAIN}")
        case "NOT_FOUND":
            return StoreNotSetUp(
                f"{name}: there is no such project or database {said}",
                hint="make it with: gcloud firestore databases create --database=NAME --location=REGION",
            )
        case "PERMISSION_DENIED" | "UNAUTHENTICATED":
            return StoreNotSetUp(f"{name}: these credentials may not read and write here {said}", hint=ROLE)
        case "FAILED_PRECONDITION":
            return StoreNotSetUp(f"{name}: it lacks an index {said}", hint="make it as the server says")
        case "INVALID_ARGUMENT":
            return ConfigurationError(f"{name}: it does not take what we wrote {said}")
        case _:
            return StoreBroken(f"{name}: the server refused {said}", hint="look at what it says")
