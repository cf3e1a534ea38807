"""Verbs: colourless flows over the store port."""
