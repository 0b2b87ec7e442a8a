"""The picture at the top of the README is of a run of the demo, and of nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]
CAST = ROOT / "docs" / "demo.cast"
PICTURE = ROOT / "docs" / "demo.svg"
FILE_BYTES_MAX = 200_000

_SPEC = importlib.util.spec_from_file_location("record_demo", ROOT / "scripts" / "record_demo.py")
assert _SPEC is not None
assert _SPEC.loader is not None
record_demo = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(record_demo)

Line = list[object]


def lines_of(cast: str) -> list[str]:
    """Return the lines of a recording without colours and without spaces."""
    _, *events = map(json.loads, cast.splitlines())
    return [re.sub(r"\x1b\[[\d;]*m|\s", "", text) for _, _, text in events]


def text_of(picture: str) -> str:
    """Return the text of a picture without spaces."""
    return re.sub(r"\s", "", "".join(ET.fromstring(picture).itertext()))


def test_the_picture_of_the_readme_has_every_line_of_the_recording() -> None:
    *lines, result = lines_of(CAST.read_text())
    shown = text_of(PICTURE.read_text())

    assert [line for line in lines if line not in shown] == []
    assert json.loads(result)["lost"] == 0
    assert "](docs/demo.svg)" in (ROOT / "README.md").read_text().partition("\n## ")[0]


def test_the_recording_is_small_and_loads_nothing() -> None:
    assert max(CAST.stat().st_size, PICTURE.stat().st_size) <= FILE_BYTES_MAX
    assert re.findall(r"(?:url\(|href=.)\W?https?:", PICTURE.read_text()) == []


def test_a_line_appears_in_the_picture_when_it_appeared_in_the_recording() -> None:
    # Given: a recording of two lines, the second 8 s after the start, and the line for programs.
    events: list[Line] = [[0.4, "o", "first\r\n"], [8.0, "o", "\x1b[31msecond\x1b[0m\r\n"]]
    cast = "\n".join(json.dumps(each) for each in [{"version": 2}, *events, [9.0, "o", "{}\r\n"]])

    # When: it is drawn.
    picture = record_demo.drawn(cast)

    # Then: the second line comes after its share of the 8 s, and the last line is not there.
    delay_s = 8.0 / record_demo.SPEED
    assert re.search(rf"animation-delay:{delay_s:.1f}s[^>]*>second<", picture)
    assert "{}" not in picture.replace("{ ", "").partition("<g ")[2]
