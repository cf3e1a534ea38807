"""Compute the key and the fingerprint of a call from its arguments: canonical, type-tagged, equal in every process.

Read `key.py` first, then `sources.py` (where a key comes from) and `canonical.py` (how a value becomes bytes).
"""
