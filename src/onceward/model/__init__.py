"""Nouns and the state table: no I/O, no clock."""
