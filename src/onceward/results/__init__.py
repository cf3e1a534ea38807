"""Encode and decode results: a replay returns the type and the value of the first call. Never pickle.

Read `codec.py` first (the envelope around a stored result), then `result_type.py`. `encryption.py` encrypts results.
"""
