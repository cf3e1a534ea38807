"""The record and its rules: states, requests, policies, outcomes, and what a store must offer. No I/O, no clock.

Read `transitions.py` first: it is the state table that every store implements. `record.py` and `requests.py` hold what
the table is about, `ports.py` what a store must offer, `capabilities.py` what it may offer beyond that.
"""
