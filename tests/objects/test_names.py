"""Names of objects: none of them leaves its folder, whatever text it was made from."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import InvalidKey
from onceward.objects import open_objects, safe_name
from onceward.objects.names import checked_name, name_with_hash

texts = st.text(st.characters(), max_size=400)
CONTENT = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.mission("A6")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Muster GmbH & Co. KG", "Muster GmbH & Co. KG"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("..", "_"),
        ("", "_"),
        ("a/b\\c\0d\ne", "a_b_c_d_e"),
        ("Größe 5.pdf", "Größe 5.pdf"),
        ("nul.txt", "_nul.txt"),
        (".hidden", "hidden"),
        ("\ud800", "_"),
    ],
)
def test_any_text_becomes_one_part_of_a_name(text: str, name: str) -> None:
    assert safe_name(text) == name


@pytest.mark.mission("A6")
def test_a_name_of_300_characters_is_cut_and_keeps_its_ending() -> None:
    name = safe_name("ü" * 300 + ".pdf")
    assert name.endswith("ü.pdf")
    assert len(name.encode()) <= 150


@given(texts)
def test_a_safe_name_is_an_object_name_and_stays_in_its_folder(text: str) -> None:
    name = safe_name(text)
    assert checked_name(name) == name
    assert PurePosixPath(name).name == name
    assert (Path("/somewhere") / name).resolve().parent == Path("/somewhere")
    assert safe_name(name) == name
    marked = name_with_hash(f"folder/{name}", CONTENT)
    assert checked_name(marked).startswith("folder/")


def test_a_marked_name_has_the_hash_before_its_ending() -> None:
    assert name_with_hash("2026/a.pdf", CONTENT) == "2026/a-0123456789ab.pdf"
    assert name_with_hash("a", CONTENT) == "a-0123456789ab"
    assert name_with_hash("x" * 255, CONTENT) == "x" * 242 + "-0123456789ab"


EMPTY_OR_UP = ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b"]
CHARACTERS = ["a\0", "a\\b", "a\n", "\ud800"]
TOO_LONG = ["x" * 256, "/".join(["x" * 200] * 5)]


@pytest.mark.parametrize("name", [*EMPTY_OR_UP, *CHARACTERS, *TOO_LONG, ".onceward-staging/x"])
def test_a_name_that_could_leave_its_place_is_refused(name: str, tmp_path: Path) -> None:
    objects = open_objects((tmp_path / "objects").as_uri())
    with pytest.raises(InvalidKey):
        objects.put(name, b"x")
    with pytest.raises(InvalidKey):
        objects.delete(name, CONTENT)
    with pytest.raises(InvalidKey):
        objects.read(name)
    assert list(objects.names()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["objects"]
