"""The terminal picture in the README shows the current output."""

from __future__ import annotations

import runpy
from xml.etree.ElementTree import fromstring

import pytest

from .terminal import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs" / "terminal.py"))
ROWS = fromstring(SCRIPT["PICTURE"].read_text(encoding="utf-8"))  # noqa: S314  # our own file
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_is_up_to_date() -> None:
    assert SCRIPT["PICTURE"].read_text(encoding="utf-8") == SCRIPT["picture"](), "run `make docs`"


def test_the_picture_is_in_the_readme() -> None:
    assert "](docs/terminal.svg)" in README.partition("\n## ")[0]


def test_the_picture_is_xml_and_shows_the_commands() -> None:
    texts = ["".join(text.itertext()) for text in ROWS]
    for command in SCRIPT["COMMANDS"]:
        assert f"$ {command}" in texts
        assert command in README or command == "agentrun specs/support.yaml"


def test_escape_codes_become_styled_pieces() -> None:
    plain, dim, green = SCRIPT["PLAIN"], SCRIPT["COLORS"]["2"], SCRIPT["COLORS"]["32"]
    line = "a \x1b[2mdim\x1b[0m \x1b[32m\x1b[1mgood\x1b[0m"
    pieces = [("a ", plain, False), ("dim", dim, False), (" ", plain, False), ("good", green, True)]
    assert [tuple(piece) for piece in SCRIPT["pieces"](line)] == pieces


def test_other_escape_sequences_are_refused() -> None:
    with pytest.raises(AssertionError):
        list(SCRIPT["pieces"]("\x1b[2J"))


def test_long_lines_are_wrapped() -> None:
    columns = SCRIPT["COLUMNS"]
    rows = list(SCRIPT["wrap"]([SCRIPT["Piece"]("x" * 10), SCRIPT["Piece"]("y" * columns)]))
    assert [sum(len(piece.text) for piece in row) for row in rows] == [columns, 10]
