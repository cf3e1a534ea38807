"""From the arguments of a call to its key and fingerprint: canonical, type-tagged, the same in every process.

Read `key.py` first, then `sources.py` (what a key can be made from) and `canonical.py` (how a value becomes bytes).
"""
