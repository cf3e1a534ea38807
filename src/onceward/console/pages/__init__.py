"""The pages of the console: one file each, found by name. A file has a `PAGE` and the functions that answer for it."""
