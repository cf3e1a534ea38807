"""Redis scripts with one wrong line each, and the check that catches it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from onceward.protocol.ports import Clock
from onceward.stores.clock import WallClock
from onceward.stores.redis import RedisStore, scripts
from onceward.stores.redis.scripts import Script
from tests.conformance.on_redis import OnRedis, client, prefix, url


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
        "cells", "return r[TOKEN] == q.token and r[NONCE] == q.nonce", "return true",
        "a_replaced_owner_changes_nothing_while_the_new_one_works",
    ),
    "completes without checking the token": Bug(
        "cells", "return r[TOKEN] == q.token and r[NONCE] == q.nonce", "return r[NONCE] == q.nonce",
        "a_wrong_token_or_nonce_is_not_the_owner",
    ),
    "completes without checking the nonce": Bug(
        "cells", "return r[TOKEN] == q.token and r[NONCE] == q.nonce", "return r[TOKEN] == q.token",
        "a_wrong_token_or_nonce_is_not_the_owner",
    ),
    "another result replaces the first after a lost reply": Bug(
        "change", "if verb == 'complete' and verdict == 'OK' then return verdict, false end",
        "if verb == 'complete' then return 'OK', false end",
        "a_repeated_completion_succeeds_or_conflicts_by_content",
    ),
    "a request uses the settings of the first one": Bug(
        "claim", "local nonce_size, fingerprint_size, fields_size, lifetime_size, from = unpack_(CLAIM, REQUESTS, at)",
        "local nonce_size, fingerprint_size, fields_size, lifetime_size, from = unpack_(CLAIM, REQUESTS, 11)",
        "each_request_of_a_batch_uses_its_own_settings",
    ),
    "times are stored without their token": Bug(
        "fields", "  shift_times(r, token)\n", "",
        "random_histories_agree_with_the_state_table",
    ),
    "the digest is lost": Bug(
        "cells", "= q.result, q.digest, q.stored", "= q.result, '', q.stored",
        "a_repeated_completion_succeeds_or_conflicts_by_content",
    ),
    "a late owner is refused": Bug(
        "cells", "return r[STATE] == PENDING and not r[RELEASED]",
        "return r[STATE] == PENDING and not r[RELEASED] and (not r[LEASE_UNTIL] or now < r[LEASE_UNTIL])",
        "a_late_owner_that_was_not_replaced_may_still_settle",
    ),
    "a missing lease is free": Bug(
        "cells", "if not r[RELEASED] and (not r[LEASE_UNTIL] or now < r[LEASE_UNTIL])",
        "if not r[RELEASED] and (r[LEASE_UNTIL] and now < r[LEASE_UNTIL])",
        "a_claim_without_a_lease_never_expires",
    ),
    "the lease is the key's TTL": Bug(
        "claim", "redis.call('SET', key, s, 'PX', lifetime)",
        "local _, _, _, nonce_size, fingerprint_size = unpack_(HEAD, s)\n"
        "local fields = cmsgpack.unpack(sub(s, HEAD_SIZE + nonce_size + fingerprint_size + 1))\n"
        "redis.call('SET', key, s, 'PX', math.ceil(fields[LEASE_UNTIL] / 1000))",
        "a_late_owner_that_was_not_replaced_may_still_settle", real_time=True,
    ),
    "tokens are the time": Bug(
        "cells", "return r[TOKEN] < now and now or r[TOKEN] + 1", "return now",
        "tokens_grow_through_every_transition",
    ),
    "a new cycle forgets the token": Bug(
        "change", "  if old_token < now then return acquire_new_cycle(key, at) end\n",
        "  if true then return acquire_new_cycle(key, at) end\n",
        "tokens_grow_while_the_clock_is_set_back_by_days",
    ),
    "a repeated claim counts as another caller's": Bug(
        "cells", "if r[NONCE] == q.nonce then return repeat_answer(r, q) end", "",
        "a_claim_repeated_with_its_nonce_gives_the_same_grant",
    ),
    "an expired result is replayed": Bug(
        "cells", "return 'NEW_CYCLE', true", "return 'REPLAY'", "a_sliding_window_moves_with_its_replays",
    ),
    "an expired result is replayed from the head of its record": Bug(
        "claim", "return now < valid_before and not differs", "return valid_before > 0 and not differs",
        "a_sliding_window_moves_with_its_replays",
    ),
    "a replay compares no payload": Bug(
        "claim",
        "and not differs(sub(s, fingerprint_at + 1, fingerprint_at + fingerprint_size), fingerprint)", "",
        "another_payload_is_a_mismatch_in_every_state",
    ),
    "a sliding window does not move": Bug(
        "fields", "if slide > 0 then valid_until = valid_until - slide + math.floor(slide / 8) end", "",
        "a_sliding_window_moves_with_its_replays",
    ),
    "failures are replayed": Bug(
        "fields", "if r[STATE] ~= COMPLETED then return 0 end", "",
        "random_histories_agree_with_the_state_table",
    ),
    "the payload is not compared": Bug(
        "cells", "if differs(r[FINGERPRINT], q.fingerprint) then return 'MISMATCH' end", "",
        "another_payload_is_a_mismatch_in_every_state",
    ),
    "attempts are not counted": Bug(
        "cells", "q.nonce, r[ATTEMPT] + 1", "q.nonce, r[ATTEMPT]",
        "of_many_takeovers_of_an_expired_lease_exactly_one_wins",
    ),
    "another result replaces the first": Bug(
        "cells", "if r[DIGEST] == q.digest then return 'OK' end", "if true then return complete_record(r, q) end",
        "a_repeated_completion_succeeds_or_conflicts_by_content",
    ),
    "notes are replaced": Bug(
        "cells", "for name, text in pairs(cjson.decode(new)) do all[name] = text end", "all = cjson.decode(new)",
        "every_text_is_returned_unchanged",
    ),
    "an empty result is stored as none": Bug(
        "change", "result = has_result == 1 and sub(",
        "result = has_result == 1 and result_at < next_at and sub(",
        "every_result_is_replayed_unchanged",
    ),
    "times are Lua numbers": Bug(
        "cells", "if q.window == 2 then return q.validity end",
        "if q.window == 2 then return tonumber(q.validity) end",
        "large_numbers_stay_exact",
    ),
    "a newer record is changed": Bug(
        "apply", "if byte(s) > READER then return 'SKEW', s end", "",
        "a_record_of_a_newer_version_is_not_changed",
    ),
    "replays write": Bug(
        "change", "if changed then", "if true then", "calls_without_effect_write_nothing",
    ),
    "nothing is stored": Bug(
        "change", "    s = put(key, r)\n", "", "answers_match_the_database",
    ),
    "no audit entry is written": Bug(
        "change", "if SIGNED ~= '' then sign(entry_of(SIGNED, 1, old_state, old_token, r, id_of(key))) end", "",
        "a_signed_change_is_in_the_audit_trail",
    ),
    "forget frees a live owner's key": Bug(
        "cells", "then return 'REFUSED' end\n    free_record(r)",
        "and false then return 'REFUSED' end\n    free_record(r)",
        "forget_refuses_a_live_owner_unless_forced",
    ),
    "forget ignores the expected state": Bug(
        "cells", "if q.seen and", "if false and", "forget_and_resolve_check_the_state_that_was_seen",
    ),
    "purges recent tokens": Bug(
        "purge", " or r[TOKEN] >= now - CLOCK_MARGIN", "", "purge_keeps_recent_tokens",
    ),
    "purges valid records": Bug(
        "purge", "return at ~= nil and now >= at", "return at == nil or now >= at",
        "purge_deletes_all_expired_records_in_batches",
    ),
    "purges without a limit": Bug(
        "purge", "if #purged < max_records and is_readable", "if is_readable",
        "purge_deletes_all_expired_records_in_batches",
    ),
    "a scan returns records twice": Bug(
        "scan", "returned[ARGV[i]] = true", "returned[ARGV[i]] = false", "pages_of_any_size_show_each_record_once",
    ),
    "a scan skips what does not fit into a page": Bug(
        "scan", "      answer[2] = false\n", "", "pages_of_any_size_show_each_record_once",
    ),
    "age does not matter": Bug(
        "scan", "if before > 0 and r[UPDATED_AT] >= before then return false end", "",
        "filters_choose_by_state_scope_key_and_age",
    ),
    "the trail is in the wrong order": Bug(
        "read_audit", "for number_of_entry = from - 1, to, -1 do", "for number_of_entry = to, from - 1 do",
        "the_trail_can_be_filtered",
    ),
    "the trail never expires": Bug(
        "trim_audit", "#entry >= 8 and number(sub(entry, 1, 8)) > now - KEEP_AUDIT then break end",
        "#entry >= 8 then break end",
        "the_trail_expires_after_its_retention",
    ),
    "a repeated event is counted again": Bug(
        "append_history", "if not is_summed or new_last_at == last_at then return end",
        "if not is_summed then return end",
        "an_event_written_twice_counts_once_and_summed_events_add_up",
    ),
    "the latest events are dropped": Bug(
        "append_history", "return a.last_at < b.last_at end", "return a.last_at > b.last_at end",
        "only_the_latest_events_of_a_key_are_kept",
    ),
    "a late event is written": Bug(
        "append_history", "if first and token_of(ARGV[n]) >= first then", "if first then",
        "an_event_of_a_missing_or_forgotten_record_is_not_written",
    ),
    "forget keeps the history": Bug(
        "change", "if verb == 'forget' then\n      redis.call('DEL', BASE .. 'h:' .. id_of(key))\n    elseif", "if",
        "an_event_of_a_missing_or_forgotten_record_is_not_written",
    ),
}  # fmt: skip


def with_bug(text: str, right: str, wrong: str) -> str:
    """Insert the bug. Raises no AssertionError, which would look as if a check had caught it."""
    if text.count(right) != 1:
        raise LookupError(f"the text must occur exactly once: {right}")
    return text.replace(right, wrong)


class WithBug(OnRedis):
    """Opens stores whose scripts have that bug."""

    def __init__(self, bug: Bug) -> None:
        self.bug = bug
        self.fake_clock = not bug.real_time

    def open(self, directory: Path, clock: Clock) -> RedisStore:
        own_time = isinstance(clock, WallClock)
        return RedisStore(url(self.kind), prefix=prefix(directory), clock=None if own_time else clock)

    def script(self, name: str) -> Script:
        return scripts.assemble(scripts.script_text(name, self.read_file))

    def read_file(self, name: str) -> str:
        text = scripts.read_file(name)
        return with_bug(text, self.bug.right, self.bug.wrong) if name == self.bug.file else text


@pytest.mark.rival(1, 2, 5, 18, 20, 22, 24)
@pytest.mark.fault("F36", "F40", "F41", "F42", "F66")
@pytest.mark.parametrize("what", BUGS)
def test_the_kit_catches(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = WithBug(BUGS[what])
    with client(kit.kind) as raw:
        raw.flushdb()  # keys of other tests would spread the records over several steps of a scan
    monkeypatch.setattr("onceward.stores.redis.calls.script", kit.script)
    with pytest.raises(AssertionError) as caught:
        getattr(kit, f"test_{kit.bug.caught_by}")("blocking", tmp_path)
    assert str(caught.value), "a check must say what is wrong"
