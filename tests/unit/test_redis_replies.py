"""Replies of Redis come out whole and in order, wherever the network cuts them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.stores.redis.resp import ProtocolError, RedisError, ReplyParser

ITEMS = st.recursive(
    st.none() | st.integers() | st.binary() | st.sampled_from([b"\r\n", b"$3\r\nabc\r\n", b""]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def written(reply: Any) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n%b" % (len(reply), b"".join(map(written, reply)))


@given(st.lists(ITEMS, min_size=1, max_size=4), st.lists(st.integers(1, 40), max_size=60))
def test_replies_are_the_same_however_they_are_cut(replies: list[Any], cuts: list[int]) -> None:
    data = b"".join(map(written, replies))
    reader, read = ReplyParser(), []
    for size in (*cuts, len(data)):
        read += reader.feed(data[:size])
        data = data[size:]
    assert read == replies


def test_a_list_may_be_missing_and_holds_refusals_among_its_items() -> None:
    missing, [status, refusal] = ReplyParser().feed(b"*-1\r\n*2\r\n+OK\r\n-NOGROUP No such key\r\n")
    assert missing is None
    assert status == b"OK"
    assert isinstance(refusal, RedisError)
    assert refusal.code == "NOGROUP"


def test_what_is_no_reply_is_garbage() -> None:
    with pytest.raises(ProtocolError, match="HTTP/1"):
        ReplyParser().feed(b"HTTP/1.1 400 Bad Request\r\n")
