"""The plain screen for pipes and files, and streams that fail."""

import io
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.report.formatting import OutputLine, Tone
from agentrun.report.screen import PlainScreen, _cells, fit_row, last_rows

LINES = [
    OutputLine("turn 1"),
    OutputLine("→ search", "dim", 1),
    OutputLine("good", "good"),
    OutputLine("hm", "warn"),
    OutputLine("no", "bad", 2),
]


def test_only_lines_are_printed() -> None:
    stream = io.StringIO()
    screen = PlainScreen(stream)
    for line in LINES:
        screen.line(line)
        screen.delta("m1.1", "text")
        screen.status("asking")
    screen.close()
    assert stream.getvalue() == "turn 1\n  → search\ngood\nhm\n    no\n"


def test_tones_become_colors() -> None:
    stream = io.StringIO()
    screen = PlainScreen(stream, color=True)
    for line in LINES:
        screen.line(line)
    assert stream.getvalue() == (
        "turn 1\n  \x1b[2m→ search\x1b[0m\n\x1b[32mgood\x1b[0m\n\x1b[33mhm\x1b[0m\n    \x1b[31mno\x1b[0m\n"
    )


def test_lines_wait_during_aside() -> None:
    stream = io.StringIO()
    screen = PlainScreen(stream)
    with suppress(RuntimeError), screen.aside():
        screen.line(OutputLine("one"))
        assert stream.getvalue() == ""
        raise RuntimeError
    screen.line(OutputLine("two"))
    with screen.aside():
        screen.line(OutputLine("three"))
        screen.close()
        assert stream.getvalue() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_missing_in_the_encoding_are_escaped(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "story"
    with path.open("w", encoding=encoding) as stream:
        stream.write("before\n")
        PlainScreen(stream).line(OutputLine("→ é 漢"))
        stream.write("after\n")
    assert path.read_bytes() == b"before\n" + "→ é 漢".encode(encoding, "backslashreplace") + b"\nafter\n"


def test_stream_without_a_file_descriptor_is_written() -> None:
    data = io.BytesIO()
    stream = io.TextIOWrapper(data, encoding="ascii")
    PlainScreen(stream).line(OutputLine("→"))
    assert data.getvalue() == b"\\u2192\n"


# --- streams that break ------------------------------------------------------------------------------------


def test_closed_stream_is_ignored() -> None:
    stream = io.StringIO()
    screen = PlainScreen(stream)
    stream.close()
    screen.line(OutputLine("one"))
    screen.close()


def test_closed_pipe_is_ignored() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        screen = PlainScreen(stream)
        screen.line(OutputLine("one"))
        assert os.read(reader, 100) == b"one\n"
        os.close(reader)
        screen.line(OutputLine("two"))
        screen.line(OutputLine("three"))  # and closing the stream has nothing left to write


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_full_disk_is_ignored() -> None:
    with open("/dev/full", "w", encoding="utf-8") as stream:
        screen = PlainScreen(stream)
        screen.line(OutputLine("one"))
        screen.line(OutputLine("two"))


SCRIPT = """
import sys
from agentrun.report.screen import screen_for
from agentrun.report.formatting import OutputLine
screen = screen_for(sys.stderr, live=True)
sys.stdin.read()
for place in range(100_000):
    screen.line(OutputLine("x" * 80))
screen.close()
sys.stdout.write("answer")
sys.exit(5)
"""


@pytest.mark.parametrize("closed", [False, True])
def test_closed_stderr_does_not_change_the_exit_code(closed: bool) -> None:
    """A reader of the story that leaves changes neither the answer nor the exit code, not even at the very end."""
    without = ["sh", "-c", 'exec "$@" 2>&-', "sh"] if closed else []
    command = [*without, sys.executable, "-c", SCRIPT]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stderr.close()
    process.stdin.close()
    assert process.stdout.read() == b"answer"
    process.stdout.close()
    assert process.wait(60) == 5


# --- rows --------------------------------------------------------------------------------------------------

ANY_TEXT = st.text(alphabet="ab \n\r\t\x1b\u0301漢😀é…\u202e", max_size=200)


@given(ANY_TEXT, st.integers(2, 30), st.integers(0, 5))
def test_last_rows_fit_the_width(text: str, width: int, most: int) -> None:
    rows = last_rows(text, width, most)
    assert len(rows) <= most
    assert all(row.isprintable() and sum(map(_cells, row)) <= width for row in rows)
    if most and text.strip("\n").isalpha() and "\n" not in text.strip("\n"):
        assert text.strip("\n").endswith("".join(rows))


@given(ANY_TEXT, st.integers(2, 30))
def test_fit_row_fits_the_width(text: str, width: int) -> None:
    row = fit_row(text, width)
    assert row.isprintable()
    assert sum(map(_cells, row)) <= width


@pytest.mark.parametrize(
    ("text", "width", "row"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("漢字", 4, "漢字"), ("漢字漢", 4, "漢…"), ("", 5, "")],
)
def test_fit_row_examples(text: str, width: int, row: str) -> None:
    assert fit_row(text, width) == row


def test_every_tone_is_tested() -> None:
    tones: tuple[Tone, ...] = ("plain", "dim", "good", "warn", "bad")
    assert {line.tone for line in LINES} == set(tones)
