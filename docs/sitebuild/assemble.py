"""Write everything that the site is made of to `build/site-source`: pages, generated pages, pictures, settings.

Three rules:

1. Files stay where they are. `places()` maps each Markdown file of the repository to its page on the site.
2. Generated pages come from the code (`reference.py`, `command_page.py`) and are never committed.
3. Files are only written when they change, so that the preview rebuilds what changed.
"""

from __future__ import annotations

from pathlib import Path

from docs.sitebuild import charts, command_page, reference
from docs.sitebuild.markdown import make_tabs, name_errors, rewrite_links, separate_lists, title_of
from docs.sitebuild.navigation import as_toml, navigation
from docs.sitebuild.pictures import draw_pictures

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "build" / "site-source"
HERE = Path(__file__).parent
PROJECT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}


def places() -> dict[str, str]:
    """Return the path on the site of each Markdown file of the repository."""
    found = dict(PROJECT_PAGES)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        found[str(page.relative_to(ROOT))] = str(page.relative_to(ROOT / "docs"))
    for page in sorted((ROOT / "examples").glob("*/README.md")):
        found[str(page.relative_to(ROOT))] = f"examples/{page.parent.name}.md"
    return found


def screenshots() -> dict[str, str]:
    """Return the path on the site of each picture of the repository that is not drawn at build."""
    return {
        f"docs/pictures/{path.name}": f"pictures/{path.name}" for path in (ROOT / "docs" / "pictures").glob("*.png")
    }


def sources() -> list[Path]:
    """Return the files whose change needs a new build."""
    return [*(ROOT / path for path in places()), *HERE.glob("*.css"), *HERE.glob("*.js"), HERE / "zensical.toml"]


def generated() -> dict[str, str]:
    """Return the pages that are written from the code: path on the site and Markdown."""
    return {**reference.pages(), **command_page.pages()}


def assemble() -> dict[str, str]:
    """Write the source of the site, and return its pages: path and Markdown."""
    where = places()
    targets = where | screenshots()
    pages = {
        place: separate_lists(rewrite_links((ROOT / path).read_text(encoding="utf-8"), path, targets))
        for path, place in where.items()
    }
    pages["howto/errors.md"] = name_errors(pages["howto/errors.md"])
    pages |= generated()
    pictures: dict[str, str] = charts.pictures()
    shown = {place: draw_pictures(make_tabs(text), place, pictures) for place, text in pages.items()}
    files: dict[str, str | bytes] = {f"docs/{place}": text for place, text in (shown | pictures).items()}
    files |= {f"docs/{place}": (ROOT / path).read_bytes() for path, place in screenshots().items()}
    files |= {
        f"docs/assets/{path.name}": path.read_text(encoding="utf-8")
        for path in [*HERE.glob("*.css"), *HERE.glob("*.js")]
    }
    settings = (HERE / "zensical.toml").read_text(encoding="utf-8")
    titles = {place: title_of(text) for place, text in pages.items()}
    files["zensical.toml"] = settings.replace("nav = []\n", as_toml(navigation(titles)))
    _write(files)
    return pages


def _write(files: dict[str, str | bytes]) -> None:
    for path in SOURCE.rglob("*"):
        inside = path.relative_to(SOURCE)
        if path.is_file() and str(inside) not in files and inside.parts[0] not in (".cache", "site"):
            path.unlink()
    for name, contents in files.items():
        path = SOURCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        wanted = contents if isinstance(contents, bytes) else contents.encode()
        if not path.exists() or path.read_bytes() != wanted:
            path.write_bytes(wanted)
