"""The record and its rules: states, requests, policies, outcomes, and what a store must offer. No I/O, no clock.

Read `transitions.py` first: it is the state table that every store implements. `record.py` and `requests.py` define the
data that the table works on, `ports.py` what every store must offer, `capabilities.py` what a store may offer.
"""
