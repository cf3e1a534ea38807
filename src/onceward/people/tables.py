"""All statements that read and write the tables of people, for both databases, in batches.

`{texts}` is replaced by a list of texts as a table with the column `value`, `{t}` by the schema prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

Row = tuple[Any, ...]

CONTRIBUTIONS: Final = """
SELECT c.record, c.number, c.person, c.unit, c.fingerprint, c.at, c.dated, c.form, c.rule
FROM {texts} CROSS JOIN {t}onceward_contributions AS c WHERE c.source = ? AND c.record = wanted.value
"""
KEYS: Final = """
SELECT k.key, k.person, k.unit FROM {texts} CROSS JOIN {t}onceward_person_keys AS k WHERE k.key = wanted.value
"""
KEYS_OF: Final = """
SELECT k.person, k.key FROM {texts} CROSS JOIN {t}onceward_person_keys AS k WHERE k.person = wanted.value ORDER BY k.key
"""
PEOPLE: Final = """
SELECT p.id, p.fields, p.sources, p.first_seen, p.last_seen, p.created_at, p.updated_at, p.merged_into
FROM {texts} CROSS JOIN {t}onceward_people AS p WHERE p.id = wanted.value
"""
CONTRIBUTIONS_OF: Final = """
SELECT c.person, c.number, c.source, c.record, c.fields, c.at, c.rule, c.confidence, c.evidence
FROM {texts} CROSS JOIN {t}onceward_contributions AS c WHERE c.person = wanted.value ORDER BY c.number
"""
CANDIDATES: Final = """
SELECT c.number, c.person, c.form
FROM {texts} CROSS JOIN {t}onceward_contributions AS c WHERE c.number = CAST(wanted.value AS {big})
"""
RECORDS_OF: Final = """
SELECT c.number, c.person, c.unit, c.source, c.record, c.form, c.has_keys
FROM {texts} CROSS JOIN {t}onceward_contributions AS c WHERE c.person = wanted.value
"""
LINKS_OF: Final = """
SELECT l.number, l.other, l.confidence, c.person FROM {texts} CROSS JOIN {t}onceward_links AS l
CROSS JOIN {t}onceward_contributions AS c WHERE l.number = CAST(wanted.value AS {big}) AND c.number = l.other
"""
ADD_LINK: Final = """
INSERT INTO {t}onceward_links (number, other, confidence) VALUES (?, ?, ?)
ON CONFLICT (number, other) DO UPDATE SET confidence = excluded.confidence
"""
DROP_LINKS: Final = "DELETE FROM {t}onceward_links WHERE number = ?"
DROP_LINKS_TO: Final = """
DELETE FROM {t}onceward_links
WHERE number IN (SELECT l.other FROM {t}onceward_links AS l WHERE l.number = ?) AND other = ?
"""
REVIEWS_OF: Final = """
SELECT r.one, r.other, r.answer FROM {texts} CROSS JOIN {t}onceward_reviews AS r WHERE r.one = wanted.value
UNION SELECT r.one, r.other, r.answer FROM {texts} CROSS JOIN {t}onceward_reviews AS r WHERE r.other = wanted.value
"""
OPEN_REVIEWS: Final = """
SELECT one, other, source, record, confidence, evidence, asked_at
FROM {t}onceward_reviews WHERE answer = '' ORDER BY confidence DESC, one, other LIMIT ? OFFSET ?
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
REDIRECT_OTHERS: Final = "UPDATE {t}onceward_people SET merged_into = ? WHERE merged_into = ?"
SET_REDIRECT: Final = "UPDATE {t}onceward_people SET merged_into = ?, updated_at = ? WHERE id = ?"
ADD_KEY: Final = "INSERT INTO {t}onceward_person_keys (key, person, unit) VALUES (?, ?, ?)"
MOVE_UNIT_KEYS: Final = "UPDATE {t}onceward_person_keys SET person = ?, unit = ? WHERE person = ? AND unit = ?"
MOVE_UNIT: Final = "UPDATE {t}onceward_contributions SET person = ?, unit = ? WHERE person = ? AND unit = ?"
ADD_CONTRIBUTION: Final = """
INSERT INTO {t}onceward_contributions
(number, source, record, person, unit, fields, fingerprint, at, dated, rule, confidence, evidence, form, has_keys)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
CHANGE_CONTRIBUTION: Final = """
UPDATE {t}onceward_contributions
SET person = ?, unit = ?, fields = ?, fingerprint = ?, at = ?, dated = ?, rule = ?, confidence = ?, evidence = ?,
form = ?, has_keys = ?
WHERE number = ?
"""
SPLIT_CONTRIBUTION: Final = """
UPDATE {t}onceward_contributions SET person = ?, unit = ?, rule = ?, confidence = 1, evidence = NULL WHERE number = ?
"""
SET_UNIT: Final = "UPDATE {t}onceward_contributions SET unit = ? WHERE person = ?"
SET_UNIT_OF_KEYS: Final = "UPDATE {t}onceward_person_keys SET unit = ? WHERE person = ?"
SPLIT_KEY: Final = "UPDATE {t}onceward_person_keys SET person = ?, unit = ? WHERE key = ? AND person = ?"
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

    def has_table(self, name: str) -> bool:
        """Return whether this table exists in the schema of the people."""
        ...

    def candidates(self, blocks: Sequence[int], most: int) -> Iterable[tuple[int, int]]:
        """Return block and number of the newest records in each block, at most `most` in each."""
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
