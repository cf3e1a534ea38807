"""All statements that read and write the tables of people, for both databases, in batches.

`{texts}` is replaced by a list of texts as a table with the column `value`, `{t}` by the schema prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

Row = tuple[Any, ...]

CONTRIBUTIONS: Final = """
SELECT c.record, c.number, c.person, c.fingerprint, c.at, c.dated, c.form, c.rule
FROM {texts} CROSS JOIN {t}onceward_contributions AS c WHERE c.source = ? AND c.record = wanted.value
"""
KEYS: Final = """
SELECT k.key, k.person FROM {texts} CROSS JOIN {t}onceward_person_keys AS k WHERE k.key = wanted.value
"""
KEYS_OF: Final = """
SELECT k.person, k.key FROM {texts} CROSS JOIN {t}onceward_person_keys AS k WHERE k.person = wanted.value ORDER BY k.key
"""
PEOPLE: Final = """
SELECT p.id, p.fields, p.sources, p.first_seen, p.last_seen, p.created_at, p.updated_at, p.merged_into
FROM {texts} CROSS JOIN {t}onceward_people AS p WHERE p.id = wanted.value
"""
CONTRIBUTIONS_OF: Final = """
SELECT c.person, c.number, c.source, c.record, c.fields, c.at, c.rule, c.confidence
FROM {texts} CROSS JOIN {t}onceward_contributions AS c WHERE c.person = wanted.value ORDER BY c.number
"""
FORMS: Final = """
SELECT c.number, c.person, c.form
FROM {texts} CROSS JOIN {t}onceward_contributions AS c WHERE c.number = CAST(wanted.value AS {big})
"""
FORMS_OF: Final = """
SELECT c.number, c.person, c.form
FROM {texts} CROSS JOIN {t}onceward_contributions AS c WHERE c.person = wanted.value
"""
REVIEWS_OF: Final = """
SELECT r.one, r.other, r.answer FROM {texts} CROSS JOIN {t}onceward_reviews AS r WHERE r.one = wanted.value
UNION SELECT r.one, r.other, r.answer FROM {texts} CROSS JOIN {t}onceward_reviews AS r WHERE r.other = wanted.value
"""
OPEN_REVIEWS: Final = """
SELECT one, other, source, record, confidence, evidence, asked_at
FROM {t}onceward_reviews WHERE answer = '' ORDER BY confidence DESC, one, other LIMIT ?
"""
SET_ANSWER: Final = """
INSERT INTO {t}onceward_reviews
(one, other, source, record, confidence, evidence, answer, asked_at, answered_at, who)
VALUES (?, ?, '', '', 0, '[]', ?, ?, ?, ?) ON CONFLICT (one, other)
DO UPDATE SET answer = excluded.answer, answered_at = excluded.answered_at, who = excluded.who
"""
ADD_PERSON: Final = """
INSERT INTO {t}onceward_people (id, fields, sources, first_seen, last_seen, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
CHANGE_PERSON: Final = """
UPDATE {t}onceward_people SET fields = ?, sources = ?, first_seen = ?, last_seen = ?, updated_at = ? WHERE id = ?
"""
REDIRECT: Final = "UPDATE {t}onceward_people SET merged_into = ?, updated_at = ? WHERE id = ?"
REDIRECT_OTHERS: Final = "UPDATE {t}onceward_people SET merged_into = ? WHERE merged_into = ?"
ADD_KEY: Final = "INSERT INTO {t}onceward_person_keys (key, person) VALUES (?, ?)"
MOVE_KEYS: Final = "UPDATE {t}onceward_person_keys SET person = ? WHERE person = ?"
ADD_CONTRIBUTION: Final = """
INSERT INTO {t}onceward_contributions
(number, source, record, person, fields, fingerprint, at, dated, rule, confidence, evidence, form)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
CHANGE_CONTRIBUTION: Final = """
UPDATE {t}onceward_contributions
SET person = ?, fields = ?, fingerprint = ?, at = ?, dated = ?, rule = ?, confidence = ?, evidence = ?, form = ?
WHERE number = ?
"""
SPLIT_CONTRIBUTION: Final = """
UPDATE {t}onceward_contributions SET person = ?, rule = ?, confidence = 1, evidence = NULL WHERE number = ?
"""
SPLIT_KEY: Final = "UPDATE {t}onceward_person_keys SET person = ? WHERE key = ? AND person = ?"
CLEAR_REDIRECT: Final = "UPDATE {t}onceward_people SET merged_into = NULL, updated_at = ? WHERE id = ?"
MOVE_CONTRIBUTIONS: Final = "UPDATE {t}onceward_contributions SET person = ? WHERE person = ?"
ADD_BLOCK: Final = "INSERT INTO {t}onceward_blocking (block, number) VALUES (?, ?)"
DROP_BLOCK: Final = "DELETE FROM {t}onceward_blocking WHERE block = ? AND number = ?"
ADD_REVIEW: Final = """
INSERT INTO {t}onceward_reviews (one, other, source, record, confidence, evidence, answer, asked_at, who)
VALUES (?, ?, ?, ?, ?, ?, '', ?, '') ON CONFLICT (one, other) DO NOTHING
"""
GET_META: Final = "SELECT value FROM {t}onceward_people_meta WHERE name = ?"
SET_META: Final = """
INSERT INTO {t}onceward_people_meta (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
DELETE_REVIEWS: Final = "DELETE FROM {t}onceward_reviews WHERE (one = ? OR other = ?) AND answer <> 'same'"
COPY_REVIEWS: Final = """
INSERT INTO {t}onceward_reviews
(one, other, source, record, confidence, evidence, answer, asked_at, answered_at, who)
SELECT CASE WHEN partner < ? THEN partner ELSE ? END, CASE WHEN partner < ? THEN ? ELSE partner END,
source, record, confidence, evidence, answer, asked_at, answered_at, who
FROM (SELECT r.*, CASE WHEN r.one = ? THEN r.other ELSE r.one END AS partner FROM {t}onceward_reviews AS r
WHERE r.one = ? OR r.other = ?) AS theirs WHERE partner <> ? AND answer <> 'same'
ON CONFLICT (one, other) DO UPDATE SET answer = excluded.answer, answered_at = excluded.answered_at, who = excluded.who
WHERE onceward_reviews.answer = ''
"""
"""Questions and answers about a merged person now apply to the surviving person."""


class Tables(Protocol):
    """One open transaction on the tables."""

    def run(self, statement: str, *values: Any) -> list[Row]:
        """Run a statement of this module and return its rows. A list among the values fills `{texts}`."""
        ...

    def run_many(self, statement: str, rows: Sequence[Row]) -> None:
        """Run a statement of this module once per row."""
        ...

    def execute(self, statement: str, values: Sequence[Any]) -> list[Row]:
        """Execute the caller's own SQL, with `?` for each value."""
        ...

    def candidates(self, blocks: Sequence[int], most: int) -> Iterable[tuple[int, int]]:
        """Return block and number of the newest contributions in each block, at most `most` in each."""
        ...

    def allocate_numbers(self, count: int) -> Sequence[int]:
        """Return `count` increasing numbers for new contributions."""
        ...

    def lock_keys(self, keys: Iterable[int]) -> bool:
        """Prevent other writers from deciding about these keys until this transaction ends.

        Return whether another writer may have changed them in the meantime, so that they must be read again.
        """
        ...

    def lock_all(self) -> None:
        """Prevent other writers from deciding about any key until this transaction ends."""
        ...

    def lock_people(self, people: Sequence[str]) -> None:
        """Prevent other writers from changing these people. Raise `RetryTransaction` if one was just merged."""
        ...


class Database(Protocol):
    """The database with the tables of people."""

    name: str

    @property
    def connection(self) -> Any:
        """The driver's connection, on which an open transaction runs."""
        ...

    def transaction(self) -> AbstractContextManager[Tables]:
        """Open a transaction: committed at the end of the block, rolled back if it raises."""
        ...

    def reading(self) -> AbstractContextManager[Tables]:
        """Open a read-only transaction."""
        ...

    def joined(self, connection: Any) -> AbstractContextManager[Tables]:
        """Join the caller's own transaction."""
        ...

    def close(self) -> None: ...
