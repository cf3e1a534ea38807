"""A Model Context Protocol server for operators: the same reads and guarded actions as the command line.

First read `server.py`. `reading.py` has the tools that read, `changing.py` those that change records, `data.py` turns
what they return into JSON that is safe to pass to a model.
"""

from __future__ import annotations
