"""Redis scripts with one wrong line each, and the check that catches it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from onceward.protocol.ports import Clock
from onceward.stores.clock import WallClock
from onceward.stores.redis import RedisStore, scripts
from onceward.stores.redis.scripts import PreparedCall, Script
from tests.conformance.on_redis import OnRedis, prefix, url


class Bug(NamedTuple):
    """The file, the right and the wrong text, and the check that catches it."""

    file: str
    right: str
    wrong: str
    caught_by: str
    real_time: bool = False


BUGS = {
    "blind takeover": Bug(
        "cells", "then return 'RUNNING' end", "and false then return 'RUNNING' end",
        "of_many_claimants_of_one_key_exactly_one_acquires",
    ),
    "completes without checking the owner": Bug(
        "cells", "if r.token ~= q.token or r.nonce ~= q.nonce then return 'LOST' end", "",
        "a_replaced_owner_changes_nothing_while_the_new_one_works",
    ),
    "completes without checking the token": Bug(
        "cells", "if r.token ~= q.token or r.nonce ~= q.nonce", "if r.nonce ~= q.nonce",
        "a_wrong_token_or_nonce_is_not_the_owner",
    ),
    "completes without checking the nonce": Bug(
        "cells", "if r.token ~= q.token or r.nonce ~= q.nonce", "if r.token ~= q.token",
        "a_wrong_token_or_nonce_is_not_the_owner",
    ),
    "the short script takes over blindly": Bug(
        "fast", "if not s then", "if not s or byte(s, 2) == 1 and byte(q, 1) == 0 then",
        "of_many_claimants_of_one_key_exactly_one_acquires",
    ),
    "the short script does not check the token": Bug(
        "fast", "and sub(s, 5, 12) == sub(q, 6, 13)", "", "a_wrong_token_or_nonce_is_not_the_owner",
    ),
    "the short script does not check the nonce": Bug(
        "fast", "elseif state == 1 and is_own and", "elseif state == 1 and", "a_wrong_token_or_nonce_is_not_the_owner",
    ),
    "the short script treats an expired lease as live": Bug(
        "fast", "now < unpack_('<I8', s, 61)", "true", "of_many_takeovers_of_an_expired_lease_exactly_one_wins",
    ),
    "the short script replays after the window": Bug(
        "fast", "in_window = now < until_", "in_window = true or now < until_",
        "a_sliding_window_moves_with_its_replays",
    ),
    "the short script does not compare the payload": Bug(
        "fast", "local is_same = given == 0", "local is_same = true or given == 0",
        "another_payload_is_a_mismatch_in_every_state",
    ),
    "the short script changes a newer record": Bug(
        "fast", "and byte(s, 1) <= READER then", "then", "a_record_of_a_newer_version_is_not_changed",
    ),
    "the short script loses the digest": Bug(
        "fast", ".. sub(q, digest_at, digest_at + digest_size - 1) ..", "..",
        "every_result_is_replayed_unchanged",
    ),
    "the short script's lease is the key's TTL": Bug(
        "fast", "now + lease + KEEP_UNFINISHED + CLOCK_MARGIN", "now + lease",
        "a_late_owner_that_was_not_replaced_may_still_settle", real_time=True,
    ),
    "the short script omits a record that was renewed": Bug(
        "fast", "and sub(s, 37, 44) == sub(s, 53, 60)", "",
        "a_completion_returns_the_stored_record_not_the_owners_copy", real_time=True,
    ),
    "the short script confuses a claim with the previous one": Bug(
        "fast", "if asked ~= claim then", "if not claim then", "each_request_of_a_batch_uses_its_own_settings",
    ),
    "the short script confuses a window with the previous one": Bug(
        "fast", "or wanted ~= window then", "then", "each_request_of_a_batch_uses_its_own_settings",
    ),
    "the short script confuses a completion with the previous one": Bug(
        "fast", "or asked ~= completion or", "or", "each_request_of_a_batch_uses_its_own_settings",
    ),
    "the short script confuses a record with the previous one": Bug(
        "fast", "if found ~= before or asked", "if asked", "each_request_of_a_batch_uses_its_own_settings",
    ),
    "the short script does not update the index": Bug(
        "fast", "if last > 0 then", "if false then", "pages_of_any_size_show_each_record_once",
    ),
    "a late owner is refused": Bug(
        "cells", "return r.state == PENDING and not r.released",
        "return r.state == PENDING and not r.released and (r.lease_until == nil or now < r.lease_until)",
        "a_late_owner_that_was_not_replaced_may_still_settle",
    ),
    "a missing lease is free": Bug(
        "cells", "if not r.released and (r.lease_until == nil or now < r.lease_until)",
        "if not r.released and (r.lease_until ~= nil and now < r.lease_until)",
        "a_claim_without_a_lease_never_expires",
    ),
    "the lease is the key's TTL": Bug(
        "apply", "at = math.max(at, r.token) + CLOCK_MARGIN",
        "at = r.lease_until or math.max(at, r.token) + CLOCK_MARGIN",
        "a_late_owner_that_was_not_replaced_may_still_settle", real_time=True,
    ),
    "tokens are the time": Bug(
        "cells", "return r.token < now and now or r.token + 1", "return now",
        "tokens_grow_through_every_transition",
    ),
    "a new cycle forgets the token": Bug(
        "apply", "if old and old.token >= now then token = old.token + 1 end", "",
        "tokens_grow_while_the_clock_is_set_back_by_days",
    ),
    "a repeated claim counts as another caller's": Bug(
        "cells", "if r.nonce == q.nonce then return repeat_answer(r, q) end", "",
        "a_claim_repeated_with_its_nonce_gives_the_same_grant",
    ),
    "an expired result is replayed": Bug(
        "cells", "return 'NEW_CYCLE', true", "return 'REPLAY'", "a_sliding_window_moves_with_its_replays",
    ),
    "the payload is not compared": Bug(
        "cells", "if differs(r.fingerprint, q.fingerprint) then return 'MISMATCH' end", "",
        "another_payload_is_a_mismatch_in_every_state",
    ),
    "attempts are not counted": Bug(
        "cells", "q.nonce, r.attempt + 1", "q.nonce, r.attempt",
        "of_many_takeovers_of_an_expired_lease_exactly_one_wins",
    ),
    "another result replaces the first": Bug(
        "cells", "if r.digest == q.digest then return 'OK' end", "if true then return complete_record(r, q) end",
        "a_repeated_completion_succeeds_or_conflicts_by_content",
    ),
    "notes are replaced": Bug(
        "cells", "for name, text in pairs(cjson.decode(new)) do all[name] = text end", "all = cjson.decode(new)",
        "every_text_is_returned_unchanged",
    ),
    "an empty result is stored as none": Bug(
        "cells", "= q.result, q.has_result, q.digest", "= q.result, q.result ~= '', q.digest",
        "every_result_is_replayed_unchanged",
    ),
    "times are Lua numbers": Bug(
        "cells", "if q.window == 2 then return q.validity end",
        "if q.window == 2 then return bytes(number(q.validity)) end",
        "large_numbers_stay_exact",
    ),
    "a newer record is changed": Bug(
        "apply", "if r.min_reader > READER then return VERDICTS.SKEW, 'R', s end", "",
        "a_record_of_a_newer_version_is_not_changed",
    ),
    "replays write": Bug(
        "apply", "if not changed then return VERDICTS[verdict], 'R', s end", "", "calls_without_effect_write_nothing",
    ),
    "nothing is stored": Bug(
        "apply", "  put(key, r, head .. texts)", "", "answers_match_the_database",
    ),
    "the index is not updated": Bug(
        "apply", "if not old then add(key) end", "",
        "pages_of_any_size_show_each_record_once",
    ),
    "no audit entry is written": Bug(
        "apply", "if SIGNED ~= '' then sign(entry_of(SIGNED, 1, before, r, id_of(key))) end", "",
        "a_signed_change_is_in_the_audit_trail",
    ),
    "forget frees a live owner's key": Bug(
        "cells", "then return 'REFUSED' end\n  free_record(r)", "and false then return 'REFUSED' end\n  free_record(r)",
        "forget_refuses_a_live_owner_unless_forced",
    ),
    "forget ignores the expected state": Bug(
        "cells", "if q.seen and", "if false and", "forget_and_resolve_check_the_state_that_was_seen",
    ),
    "purges recent tokens": Bug(
        "purge", " or r.token >= now - CLOCK_MARGIN", "", "purge_keeps_recent_tokens",
    ),
    "purges valid records": Bug(
        "purge", "return at ~= nil and now >= at", "return at == nil or now >= at",
        "purge_deletes_all_expired_records_in_batches",
    ),
    "purges without a limit": Bug(
        "purge", "if #purged == max_records then", "if false then", "purge_deletes_all_expired_records_in_batches",
    ),
    "a scan continues after the new position of a recreated record": Bug(
        "index", "if place and tonumber(place) == score then", "if place then",
        "a_scan_continues_although_its_last_record_was_purged_or_recreated",
    ),
    "a scan starts again if its last record was deleted": Bug(
        "index", "from = ids_until(score, id)", "from = 0",
        "a_scan_continues_although_its_last_record_was_purged_or_recreated",
    ),
    "a scan skips all records claimed together with a deleted one": Bug(
        "index", "low = middle + 1 end", "low = high end",
        "a_scan_continues_although_its_last_record_was_purged_or_recreated",
    ),
    "pages skip a record": Bug(
        "scan", "cursor = cursors[i - 1]", "cursor = cursors[i]", "pages_of_any_size_show_each_record_once",
    ),
    "age does not matter": Bug(
        "scan", "if before > 0 and r.updated_at >= before then return false end", "",
        "filters_choose_by_state_scope_key_and_age",
    ),
    "the trail is in the wrong order": Bug(
        "read_audit", "for number_of_entry = from - 1, to, -1 do", "for number_of_entry = to, from - 1 do",
        "the_trail_can_be_filtered",
    ),
    "the trail never expires": Bug(
        "trim_audit", "if entry and number(sub(entry, 1, 8)) > now - KEEP_AUDIT then break end",
        "if entry then break end",
        "the_trail_expires_after_its_retention",
    ),
}  # fmt: skip


def with_bug(text: str, right: str, wrong: str) -> str:
    """Insert the bug. Raises no AssertionError, which would look as if a check had caught it."""
    if text.count(right) != 1:
        raise LookupError(f"the text must occur exactly once: {right}")
    return text.replace(right, wrong)


FAST_PATH_DISABLED = scripts.assemble(
    with_bug(
        with_bug(scripts.read_file("fast"), "if byte(q, 1) == 0 then -- a first", "if false then -- a first"),
        "and byte(s, 1) <= READER then", "and false then",
    )
)  # fmt: skip


class WithBug(OnRedis):
    """Opens stores whose scripts have that bug."""

    def __init__(self, bug: Bug) -> None:
        self.bug = bug
        self.fake_clock = not bug.real_time

    def open(self, directory: Path, clock: Clock) -> RedisStore:
        own_time = isinstance(clock, WallClock)
        store = RedisStore(url(self.kind), prefix=prefix(directory), clock=None if own_time else clock)
        store._apply, store._fast = self.script("apply"), self.script("fast")
        if self.bug.file in {"cells", "apply"}:  # else the short script would give the right answer
            store._fast = FAST_PATH_DISABLED
        store._prepared = PreparedCall(store._fast, store._index_keys, store._record)
        return store

    def script(self, name: str) -> Script:
        parts = {part: scripts.read_file(part) for part in scripts.SCRIPT_FILES[name]}
        if self.bug.file in parts:
            parts[self.bug.file] = with_bug(parts[self.bug.file], self.bug.right, self.bug.wrong)
        return scripts.assemble(*parts.values())


@pytest.mark.rival(1, 2, 5, 18, 20, 22, 24)
@pytest.mark.fault("F36", "F40", "F41", "F42", "F66")
@pytest.mark.parametrize("what", BUGS)
def test_the_kit_catches(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = WithBug(BUGS[what])
    monkeypatch.setattr("onceward.stores.redis.calls.script", kit.script)
    with pytest.raises(AssertionError) as caught:
        getattr(kit, f"test_{kit.bug.caught_by}")("blocking", tmp_path)
    assert str(caught.value), "a check must say what is wrong"
