"""Writes terminal.svg, the picture of a terminal in the README: `make docs`.

The commands run for real, in a copy of the example project and in a pseudo-terminal, so that the picture has the
colours of the program. A replay gives the same output on every machine, and so the same picture.
"""

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
ROOT = HERE.parent
PICTURE = HERE / "terminal.svg"
COPIED = ("specs", "cassettes", "pyproject.toml")
COMMANDS = (
    "agentrun specs/support.yaml",
    "sed -i.old 's/three days/five days/' specs/prompts/support.md.j2",
    "agentrun specs/support.yaml",
)
COLUMNS = 112
ROW, CELL, MARGIN = 18, 7.83, 16
"""Height of a line, width of a character and margin, in pixels."""
BACKGROUND, PLAIN, PROMPT = "#1c2128", "#d5dbe3", "#6cb6ff"
COLORS = {"2": "#8b949e", "31": "#ff7b72", "32": "#56d364", "33": "#e3b341", "36": "#76e3ea"}
"""The codes of the styles that agentrun uses: dim, red, green, yellow and cyan."""
_STYLE = re.compile(r"\x1b\[([0-9;]*)m")


class Piece(NamedTuple):
    """Text in one style."""

    text: str
    color: str = PLAIN
    bold: bool = False


def picture() -> str:
    """The SVG."""
    rows = [row for line in session() for row in wrap(line)]
    width, height = round(COLUMNS * CELL) + 2 * MARGIN, len(rows) * ROW + 2 * MARGIN
    style = f"font: 13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: {PLAIN}; white-space: pre"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" width="{width}" height="{height}">',
        "<title>agentrun replays an agent, then explains why a changed prompt no longer matches its cassette</title>",
        f"<style>text {{ {style} }}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        *(f'<text x="{MARGIN}" y="{MARGIN + 13 + n * ROW}">{draw(row)}</text>' for n, row in enumerate(rows) if row),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def session() -> Iterator[list[Piece]]:
    """The lines of the terminal: each command, and what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, Path(folder) / name)
        for number, command in enumerate(COMMANDS):
            if number and command.startswith("sed"):
                yield []
            yield [Piece("$ ", PROMPT, True), Piece(command, bold=True)]
            for line in run(command, folder).splitlines():
                yield list(pieces(line))


def run(command: str, folder: str) -> str:
    """Run a command in a pseudo-terminal and return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    main, terminal = pty.openpty()
    with subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env={"PATH": path, "HOME": folder, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    ):
        os.close(terminal)
        return b"".join(read(main)).decode().replace("\r\n", "\n")


def read(terminal: int) -> Iterator[bytes]:
    try:
        while data := os.read(terminal, 1 << 16):
            yield data
    except OSError:  # how Linux reports the end of a pseudo-terminal
        pass
    finally:
        os.close(terminal)


def pieces(line: str) -> Iterator[Piece]:
    """A line with escape sequences as pieces in one style each."""
    color, bold = PLAIN, False
    for index, part in enumerate(_STYLE.split(line)):
        if index % 2:
            for code in part.split(";"):
                color, bold = (PLAIN, False) if code in ("", "0") else (COLORS.get(code, color), bold or code == "1")
        elif part:
            assert "\x1b" not in part, f"another escape sequence than a style: {part!r}"
            yield Piece(part, color, bold)


def wrap(line: list[Piece]) -> Iterator[list[Piece]]:
    """A line in rows, wrapped as a terminal does."""
    row: list[Piece] = []
    used = 0
    for piece in line:
        text = piece.text
        while used + len(text) > COLUMNS:
            yield [*row, piece._replace(text=text[: COLUMNS - used])]
            row, text, used = [], text[COLUMNS - used :], 0
        row.append(piece._replace(text=text))
        used += len(text)
    yield row


def draw(row: list[Piece]) -> str:
    parts = []
    for piece in row:
        style = "" if piece.color == PLAIN else f' fill="{piece.color}"'
        style += ' font-weight="bold"' if piece.bold else ""
        parts.append(f"<tspan{style}>{escape(piece.text)}</tspan>" if style else escape(piece.text))
    return "".join(parts)


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    sys.stderr.write("  docs/terminal.svg\n")
