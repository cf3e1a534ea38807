"""The site: every page is in the navigation, links and lists survive, pictures are drawn without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.bars import BARS
from docs.sitebuild import charts, command_page
from docs.sitebuild.assemble import places
from docs.sitebuild.markdown import make_tabs, name_errors, rewrite_links, separate_lists, title_of
from docs.sitebuild.navigation import SECTIONS, as_toml, listed, navigation
from docs.sitebuild.pictures import draw_pictures
from docs.sitebuild.site_files import check_offline, write_llms_files
from tests.docs.pages import ROOT

TITLES = {place: title_of((ROOT / path).read_text(encoding="utf-8")) for path, place in places().items()}


def leaves(tree: object) -> list[str]:
    return [tree] if isinstance(tree, str) else [leaf for _, child in tree for leaf in leaves(child)]  # type: ignore[attr-defined]  # a list of pairs


@pytest.mark.finding("N59")
def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(leaves(navigation(TITLES))) == sorted(TITLES)


@pytest.mark.finding("N59")
def test_every_page_has_a_title() -> None:
    assert [page for page, title in TITLES.items() if not title] == []


def test_a_page_that_no_section_lists_appears_in_the_section_of_its_folder() -> None:
    guides = dict(navigation({**TITLES, "howto/made-up.md": "Made up"}))["Guides"]
    more = dict(guides)["More guides"]  # type: ignore[call-overload]  # as above
    assert ("Made up", "howto/made-up.md") in more


def test_the_committed_pages_are_placed_on_purpose() -> None:
    """A new page shows up by itself; this names those that still wait for a place in `SECTIONS`."""
    waiting = [page for page in TITLES if page.startswith("start/") and page not in listed()]
    assert waiting == [], "add them to SECTIONS in docs/sitebuild/navigation.py"
    assert list(SECTIONS) == ["Start", "Guides", "Explain", "Reference", "Migrate", "Project"]


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 200


def test_links_point_at_pages_of_the_site_and_links_to_code_become_text() -> None:
    where = {"README.md": "index.md", "docs/howto/keys.md": "howto/keys.md", "CHANGELOG.md": "project/changelog.md"}
    text = "[a](docs/howto/keys.md#x) [b](src/x.py) [c](https://example.org) [d](#e)\n```md\n[f](src/x.py)\n```\n"
    assert rewrite_links(text, "README.md", where) == (
        "[a](howto/keys.md#x) b [c](https://example.org) [d](#e)\n```md\n[f](src/x.py)\n```\n"
    )
    picture = {"README.md": "index.md", "docs/pictures/a.png": "pictures/a.png"}
    assert rewrite_links("![a](docs/pictures/a.png)", "README.md", picture) == "![a](pictures/a.png)"
    assert rewrite_links("[a](../../CHANGELOG.md)", "docs/howto/keys.md", where) == "[a](../project/changelog.md)"


def test_lists_of_github_become_lists_of_the_site() -> None:
    assert separate_lists("text:\n- a\n  more\n- b\n  - c\nend\n") == "text:\n\n- a\n    more\n- b\n    - c\nend\n"
    assert separate_lists("```\ntext\n- a\n```\n") == "```\ntext\n- a\n```\n"


def test_parts_become_tabs() -> None:
    text = "<!-- tabs -->\n**Sync**\n\n```python\na\n```\n\n**Async**\n\nb\n<!-- /tabs -->\nend\n"
    assert make_tabs(text) == '=== "Sync"\n\n    ```python\n    a\n    ```\n\n=== "Async"\n\n    b\n\nend\n'


def test_each_error_has_an_anchor() -> None:
    assert name_errors("| `LeaseLost` | `lease_lost` | 409 |") == (
        '| <a id="lease-lost"></a>`LeaseLost` | `lease_lost` | 409 |'
    )


def test_a_picture_is_drawn_for_light_and_dark() -> None:
    pictures: dict[str, str] = {}
    text = draw_pictures("```mermaid\nflowchart LR\n    %% A calls B\n    A --> B\n```\n", "howto/keys.md", pictures)
    assert text.count("![A calls B](../pictures/") == 2
    light, dark = sorted(pictures, reverse=True)
    assert light.endswith("-light.svg")
    assert pictures[light].startswith("<svg")
    assert pictures[light] != pictures[dark]
    assert "http" not in pictures[dark].replace("http://www.w3.org/", "")


def test_the_charts_show_every_case_that_has_a_bar() -> None:
    text = charts.SPEED.read_text(encoding="utf-8")
    drawn = []
    for title, sense in charts.CHARTS.values():
        shown = charts.bars(sense, text)
        picture = charts.draw(title, shown, "dark", slower_if_above=sense == "≤")
        assert all(f"{bar.ratio:g} ×" in picture for bar in shown)
        drawn += [bar.case for bar in shown]
    assert sorted(drawn) == sorted(BARS)


def test_a_case_that_is_slower_is_drawn_as_slower() -> None:
    bad = charts.INKS["light"][2]
    assert bad in charts.draw("t", [charts.Bar("a", 0.9)], "light", slower_if_above=False)
    assert bad in charts.draw("t", [charts.Bar("a", 1.4)], "light", slower_if_above=True)
    assert bad not in charts.draw("t", [charts.Bar("a", 2.0)], "light", slower_if_above=False)


def test_every_command_and_metric_is_in_the_reference() -> None:
    pages = command_page.pages()
    assert "## `onceward explain`" in pages["reference/cli/commands.md"]
    assert "### `onceward people search`" in pages["reference/cli/commands.md"]
    assert "`onceward_claim_errors_total`" in pages["reference/metrics.md"]
    assert "CREATE TABLE" in pages["reference/schemas.md"]


def test_a_page_that_loads_something_from_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<link rel="canonical" href="https://x/"><a href="https://x/">x</a>', "utf-8")
    assert check_offline(tmp_path) == []
    (tmp_path / "b.html").write_text('<script src="https://cdn.example/x.js"></script>', "utf-8")
    (tmp_path / "c.css").write_text("@import 'https://fonts.example/x';", "utf-8")
    assert [line.split(":")[0] for line in check_offline(tmp_path)] == ["b.html loads https", "c.css loads https"]


def test_the_files_for_language_models_list_and_contain_the_pages(tmp_path: Path) -> None:
    write_llms_files(tmp_path, {"howto/keys.md": "# Choose keys\n\nText.", "evidence/a.md": "# Soak"})
    assert "- [Choose keys](howto/keys.html)" in (tmp_path / "llms.txt").read_text("utf-8")
    assert (tmp_path / "llms-full.txt").read_text("utf-8") == "# Choose keys\n\nText.\n"


@pytest.mark.parametrize("link", ["[x](missing.md)", "[x](#missing)", "[x](other.md#missing)"])
def test_a_broken_link_or_anchor_fails_the_build(tmp_path: Path, link: str) -> None:
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text(f"# Page\n\n{link}\n", encoding="utf-8")
    (pages / "other.md").write_text("# Other\n\nText.\n", encoding="utf-8")
    settings = tmp_path / "zensical.toml"
    settings.write_text(
        '[project]\nsite_name = "x"\n' + as_toml([("Page", "index.md"), ("Other", "other.md")]), "utf-8"
    )
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(settings)]
    run = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode != 0, run.stdout
    assert "does not exist" in run.stdout + run.stderr


@pytest.mark.finding("N59")
def test_every_command_has_an_example() -> None:
    sections = re.split(r"^#+ `", command_page.commands_page(), flags=re.MULTILINE)[1:]
    without = [section.partition("`")[0] for section in sections if "Example" not in section]
    assert sections
    assert without == []


def test_the_page_of_tables_has_no_placeholders() -> None:
    page = command_page.schemas_page()
    assert "CREATE TABLE onceward_records" in page
    assert "{schema}" not in page
