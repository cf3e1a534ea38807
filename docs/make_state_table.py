"""Writes docs/explain/state-table.md from the code: `python docs/make_state_table.py`.

One representative record stands for each row of the table. Every verb is applied to it with the real functions, and
the page shows the results. So the page always describes what the code does. The diagram of the attempt comes from its
table of moves.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from onceward.engine import attempt
from onceward.engine.attempt import ENDED, MOVES, AttemptState
from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import (
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Verdict,
)
from onceward.protocol.transitions import Row, claim, forget, purgeable, renew, row_of, settle

PAGE = Path(__file__).parent / "explain" / "state-table.md"
NOW = 1_800_000_000_000_000
OLD = NOW - 2 * KEEP_UNFINISHED  # old enough for a purge to consider it
LEASE = 600_000_000
MINE = b"owner"
SETTLEMENTS = ("complete", "fail", "park", "release", "resolve")
VERBS = ("claim", "renew", *SETTLEMENTS, "forget", "purge")

INTRODUCTION = """\
# The state table

This page is generated from `onceward/protocol/transitions.py` and `onceward/engine/attempt.py` by
`docs/make_state_table.py`; do not edit it.

## The two state machines

| | the record | the attempt |
|---|---|---|
| what it is | what the store knows about a key | one delivery of work in one process |
| where it lives | in the store; every process sees the same one | in memory; a crash ends it |
| what changes it | requests, from `claim` to `purge` | the flow that runs the work |
| its table | [the record](#the-record) | [the attempt](#the-attempt) |

Many attempts may work on one record, one after the other. At most one of them owns it at a time.
[Evidence: the protocol as a model](evidence-model.md) explores both together.

## The record

The store holds one record under each (scope, key). A record is in one of five states:

| state | what is known about the work |
|---|---|
| `FREE` | nothing; only the last token is kept, so that the next one is larger |
| `PENDING` | a worker owns the key: it is processing it, or has stopped renewing its lease |
| `COMPLETED` | the effect is done, and the record is replayed until its window ends |
| `FAILED` | the attempt failed: permanently (final), or until its retry is due |
| `PARKED` | it is unknown whether the effect happened; the late owner or an operator must resolve it |

Four things to know when reading on:

- The owner is the caller with the record's token **and** nonce. `renew`, `complete`, `fail`, `park` and `release` work
  for the owner only; any other caller gets `lost`, and nothing changes.
- An owner's verbs never check the time. A late owner that was not replaced may still settle, because refusing it would
  only cause a second effect.
- Attempts are counted when a key is claimed, so crashes count. `release` means that the work was not started, and
  undoes its own attempt.
- Only `purge` deletes, and only records that are no longer needed.
"""

ATTEMPT = """\
## The attempt

An attempt begins in NEW and moves only along this diagram. Any other move raises an error, because it would be a bug in
Onceward. If the process crashes, the attempt disappears, and the lease of its record expires.
"""

NOTES = """\
- After an interrupt, a key is released only if its work has not started: in CLAIMING, OWNED, or in VERIFYING before
  RUNNING. Work that was interrupted while it ran is treated like a crash: the lease expires.
- SETTLED can lead to SETTLING again, because the work may complete its claim twice. The record does not change.
- UNKNOWN can lead to SETTLING again, because a completion may be repeated. It can lead to UNPROTECTED if the policy
  allows work to run without the store.
"""

READING = """\
### Every row and every verb

A cell reads *verdict → state afterwards*; without an arrow nothing changed. In the owner's columns the caller is the
owner. `claim` is made by another caller, with the same payload. In the rows from "PENDING, live" on, a claim with
another payload is a `mismatch` and changes nothing. A claim that is repeated with its own nonce (its reply was lost)
gets the same answer again: `acquired` while PENDING, `replay` when COMPLETED, else `settled`; it never acquires a
second time. `resolve` is made by an operator who saw the record in that state, with that token; `forget` may also
state what was seen. If the record has changed since then, both answer `lost`.
"""


class Sample(NamedTuple):
    """A record that represents a row, and what is special about it and the claimant."""

    row: Row
    record: Record | None
    detail: str = ""
    max_attempts: int = 0

    @property
    def name(self) -> str:
        return f"{self.row.value}: {self.detail}" if self.detail else self.row.value


def samples() -> list[Sample]:
    live = Record(
        id=b"",
        scope="",
        key="",
        state=RecordState.PENDING,
        token=OLD,
        nonce=MINE,
        cycle=OLD,
        attempt=2,
        lease_until=NOW + LEASE,
    )
    lapsed = replace(live, lease_until=NOW - 1)
    for_long = replace(live, lease_until=NOW - KEEP_UNFINISHED)
    done = replace(live, state=RecordState.COMPLETED, lease_until=None, digest=b"same", valid_until=NOW + 1)
    failed = replace(live, state=RecordState.FAILED, lease_until=None, retry_at=NOW, valid_until=NOW + 1)
    refused = replace(failed, final=True, retry_at=None)
    verifying = replace(for_long, after_crash=AfterCrash.VERIFY, ask_first=True)
    return [
        Sample(Row.NONE, None),
        Sample(Row.NEWER, replace(live, min_reader=READER + 1)),
        Sample(
            Row.FREE, Record(id=b"", scope="", key="", state=RecordState.FREE, token=OLD, nonce=MINE, released=True)
        ),
        Sample(Row.COMPLETED_EXPIRED, replace(done, valid_until=NOW)),
        Sample(Row.FAILED_FINAL_EXPIRED, replace(refused, valid_until=NOW)),
        Sample(Row.FAILED_RETRYABLE_EXPIRED, replace(failed, valid_until=NOW)),
        Sample(Row.PENDING_LIVE, live),
        Sample(Row.PENDING_LIVE, replace(live, attempt=1), "first attempt"),
        Sample(Row.PENDING_LIVE, replace(live, lease_until=None), "lease missing"),
        Sample(Row.PENDING_LAPSED, lapsed, "rerun, attempts left"),
        Sample(Row.PENDING_LAPSED, for_long, "rerun, for 30 days"),
        Sample(Row.PENDING_LAPSED, replace(for_long, max_attempts=2), "rerun, attempts used up", max_attempts=2),
        Sample(Row.PENDING_LAPSED, verifying, "verify"),
        Sample(Row.PENDING_LAPSED, replace(for_long, after_crash=AfterCrash.PARK), "park"),
        Sample(Row.RELEASED_UNVERIFIED, replace(verifying, released=True)),
        Sample(Row.FAILED_RETRYABLE, failed, "attempts used up", max_attempts=2),
        Sample(Row.FAILED_RETRYABLE, replace(failed, retry_at=NOW + 1), "before retry_at"),
        Sample(Row.FAILED_RETRYABLE, failed, "due"),
        Sample(Row.FAILED_RETRYABLE, replace(failed, released=True), "due, by release"),
        Sample(Row.FAILED_FINAL, refused),
        Sample(Row.COMPLETED, done),
        Sample(Row.PARKED, replace(live, state=RecordState.PARKED, lease_until=None)),
    ]


def apply(verb: str, sample: Sample) -> list[tuple[str, Record | None, Verdict]]:
    """What the verb does to the record, as (how it was called, record afterwards, verdict)."""
    record = sample.record
    token = OLD if record is None else record.token
    match verb:
        case "claim":
            request = ClaimRequest(b"", "", "", b"other", LEASE, max_attempts=sample.max_attempts)
            return [("", *claim(record, request, NOW))]
        case "renew":
            return [("", *renew(record, Renewal(b"", token, MINE, LEASE), NOW))]
        case "complete":
            return [
                (f"{which} result: ", *settle(record, Complete(b"", token, MINE, digest=which.encode()), NOW))
                for which in ("same", "other")
            ]
        case "fail":
            fail = Fail(b"", token, MINE, known=True, max_attempts=sample.max_attempts)
            return [("", *settle(record, fail, NOW)), ("unknown: ", *settle(record, replace(fail, known=False), NOW))]
        case "park":
            return [("", *settle(record, Park(b"", token, MINE), NOW))]
        case "release":
            return [("", *settle(record, Release(b"", token, MINE), NOW))]
        case "resolve":
            seen = RecordState.PARKED if record is None else record.state
            return [
                (
                    f"{forced}{how}: ",
                    *settle(record, Resolve(b"", token, how, state_seen=seen, force=bool(forced)), NOW),
                )
                for forced in ("", "forced ")
                for how in Resolution
            ]
        case _:
            return [(how, *forget(record, NOW, force=bool(how))) for how in ("", "forced: ")]


def told(before: Record | None, record: Record | None, verdict: Verdict) -> str:
    if record is before or record is None:
        return verdict.value
    parts = [described(record)]
    if before is not None and record.state in {RecordState.PENDING, RecordState.FAILED}:
        if record.cycle != before.cycle:
            parts.append("new cycle")
        elif record.attempt != before.attempt:
            parts.append(f"attempt {record.attempt - before.attempt:+d}")
    if verdict is Verdict.ACQUIRED and record.ask_first:
        parts.append("ask first")
    return f"{verdict.value} → {', '.join(parts)}"


def described(record: Record) -> str:
    if record.state is RecordState.FAILED:
        return "FAILED final" if record.final else "FAILED"
    if record.state is RecordState.PENDING and record.released:
        return "PENDING, released"
    return record.state.value


def cell(verb: str, sample: Sample) -> str:
    if verb == "purge":
        return "–" if sample.record is None else "deleted" if purgeable(sample.record, NOW) else "kept"
    answers = [(how, told(sample.record, record, verdict)) for how, record, verdict in apply(verb, sample)]
    texts = {text for _, text in answers}
    if len(texts) == 1:  # however it was called, the answer is the same
        return texts.pop()
    if verb == "resolve":
        answers = shortened(answers)
    return "<br>".join(how + text for how, text in answers)


def shortened(answers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without the forced answers, where force makes no difference; else one refusal stands for all."""
    plain, forced = answers[: len(Resolution)], answers[len(Resolution) :]
    if [text for _, text in plain] == [text for _, text in forced]:
        return plain
    return [("", plain[0][1]), *forced]


def changes() -> dict[tuple[str, str], list[str]]:
    """Which verbs lead from one state to another."""
    found: dict[tuple[str, str], list[str]] = {}
    for sample in samples():
        before = sample.record
        start = "[*]" if before is None else before.state.value
        for verb in ("claim", *SETTLEMENTS, "forget"):  # renewing never leads to another state
            for how, record, _ in apply(verb, sample):
                if record is None or record is before:
                    continue
                label = f"{verb} ({how.removeprefix('forced ').removesuffix(': ')})" if verb == "resolve" else verb
                labels = found.setdefault((start, record.state.value), [])
                if label not in labels:
                    labels.append(label)
        if before is not None and purgeable(before, NOW):
            found[(start, "[*]")] = ["purge"]
    return found


def attempt_meanings() -> dict[AttemptState, str]:
    """What the docstring of `engine/attempt.py` says about each state."""
    words = (line.split(maxsplit=1) for line in (attempt.__doc__ or "").splitlines() if line.startswith("    "))
    return {AttemptState[name]: meaning for name, meaning in words}


def attempt_section() -> str:
    meanings = attempt_meanings()
    if set(meanings) != set(AttemptState):
        raise SystemExit(f"no meaning in engine/attempt.py: {set(AttemptState) - set(meanings)}")
    edges, rows = [f"    [*] --> {AttemptState.NEW.name}"], []
    for start in AttemptState:
        ends = [end.name for end in AttemptState if end in MOVES[start]]
        is_last = start in ENDED or not ends
        edges += [f"    {start.name} --> {end}" for end in [*ends, *(["[*]"] if is_last else [])]]
        following = [f"`{end}`" for end in ends] + (["the end"] if is_last else [])
        rows.append(f"| `{start.name}` | {meanings[start]} | {', '.join(following)} |")
    diagram = ["```mermaid", "stateDiagram-v2", "    %% The states of an attempt, and its moves", *edges, "```"]
    table = ["| state | meaning | next |", "|---|---|---|", *rows]
    return "\n".join([ATTEMPT, *diagram, "", *table, "", NOTES])


def page() -> str:
    stands_for = {sample.row for sample in samples() if row_of(sample.record, NOW) is sample.row}
    if stands_for != set(Row):
        raise SystemExit(f"no sample stands for: {set(Row) - stands_for}")
    edges = [f"    {start} --> {end} : {', '.join(labels)}" for (start, end), labels in changes().items()]
    head = f"| record | {' | '.join(VERBS)} |\n|{'---|' * (len(VERBS) + 1)}"
    rows = [f"| {sample.name} | {' | '.join(cell(verb, sample) for verb in VERBS)} |" for sample in samples()]
    diagram = "\n".join(
        [
            "### How the record changes",
            "",
            "```mermaid",
            "stateDiagram-v2",
            "    %% The states of a record, and the verbs that change it",
            *edges,
            "```",
        ]
    )
    return "\n".join([INTRODUCTION, diagram, "", READING, head, *rows, "", attempt_section()])


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
