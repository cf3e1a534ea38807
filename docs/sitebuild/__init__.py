"""Build the documentation site: `python -m docs.sitebuild` (`make docs`). Read `assemble.py` first.

The pages in `docs/` are plain Markdown that GitHub shows as well. The build copies them to `build/site-source`, adds generated pages and pictures,
and lets Zensical turn that folder into `site/`.
"""
