"""How tool results are clipped for the model."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core import tool_results
from agentrun.core.fault import Fault
from agentrun.core.messages import Image, Text
from agentrun.core.tool_results import clip_parts, clip_text, fault_parts

LINES, BYTES = 2000, 51_200
MARKER = re.compile(r"\[… (\d+) of (\d+) bytes left out …\]\n")


def split_at_marker(cut: str) -> tuple[str, str, int, int]:
    """Head, tail, bytes left out and all bytes of what was cut."""
    (found,) = MARKER.finditer(cut)
    return cut[: found.start()], cut[found.end() :], int(found[1]), int(found[2])


def lines(count: int) -> str:
    return "".join(f"{n}\n" for n in range(count))


def test_result_above_the_line_limit_is_clipped() -> None:
    assert clip_text(lines(LINES), LINES, BYTES) == lines(LINES)
    head, tail, hidden, size = split_at_marker(clip_text(lines(LINES + 1), LINES, BYTES))
    assert head == lines(1000)
    assert tail == lines(2001).removeprefix(lines(1001))
    assert (hidden, size) == (len("1000\n"), len(lines(2001)))


def test_last_line_without_a_newline_counts() -> None:
    whole = lines(LINES).removesuffix("\n")
    assert clip_text(whole, LINES, BYTES) == whole
    assert clip_text(whole + "\nx", LINES, BYTES) != whole + "\nx"


def test_result_above_the_byte_limit_is_clipped() -> None:
    assert clip_text("x" * BYTES, LINES, BYTES) == "x" * BYTES
    head, tail, hidden, size = split_at_marker(clip_text("a" + "x" * (BYTES - 1) + "b", LINES, BYTES))
    assert (head, tail) == ("a" + "x" * 25_599 + "\n", "x" * 25_599 + "b")
    assert (hidden, size) == (1, BYTES + 1)


def test_limit_counts_bytes_and_keeps_characters_whole() -> None:
    assert clip_text("ä" * (BYTES // 2), LINES, BYTES) == "ä" * (BYTES // 2)
    _, _, hidden, size = split_at_marker(clip_text("ä" * (BYTES // 2) + "b", LINES, BYTES))
    assert (hidden, size) == (2, BYTES + 1), "a character is left out as a whole"


def test_head_and_tail_each_get_half_of_both_limits() -> None:
    """Many lines, and long ones: each half has its own part of both limits."""
    text = "".join(f"{n:04}" + "x" * 95 + "\n" for n in range(3000))
    head, tail, _, _ = split_at_marker(clip_text(text, LINES, BYTES))
    assert head.startswith("0000x")
    assert tail.endswith("2999" + "x" * 95 + "\n")
    assert (len(head), len(tail)) == (25_600, 25_600)


def test_cut_may_fall_inside_a_line() -> None:
    """The cut may fall into a line; the pieces count as lines."""
    text = lines(LINES - 1) + "x" * BYTES
    head, tail, _, _ = split_at_marker(clip_text(text, LINES, BYTES))
    assert (head, tail) == (lines(1000), "x" * 25_600)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\u2028", ""])
def test_marker_is_on_its_own_line(end: str) -> None:
    cut = clip_text(("x" * 9 + end) * 30, 10, 100)
    assert len([line for line in cut.splitlines() if MARKER.fullmatch(line + "\n")]) == 1


def test_lone_surrogate_is_clipped_as_a_question_mark() -> None:
    assert clip_text("\ud800", 10, 10) == "\ud800"
    assert clip_text("\ud800" * 20, 10, 10) == "?????\n[… 10 of 20 bytes left out …]\n?????"


TEXTS = st.text(alphabet=st.sampled_from("ab\n\r\x0b\u2028äé漢😀"), max_size=80)


def is_within(text: str, cut: str, max_lines: int, max_bytes: int) -> bool:
    head, tail, hidden, size = split_at_marker(cut)
    marker = len(cut.encode()) - len((head + tail).encode())
    return (
        len(cut.encode()) - marker <= max_bytes + 1  # the border
        and len(cut.splitlines()) <= max_lines + 1
        and size == len(text.encode())
        and text.endswith(tail)
        and text.startswith((head, head.removesuffix("\n")))
        and hidden >= 0
    )


@given(TEXTS, st.integers(1, 12), st.integers(1, 60))
def test_clipped_text_is_within_the_limits(text: str, max_lines: int, max_bytes: int) -> None:
    """The limit and one line; head and tail as they were; no character in two; nothing twice."""
    cut = clip_text(text, max_lines, max_bytes)
    if len(text.splitlines()) <= max_lines and len(text.encode()) <= max_bytes:
        assert cut == text
    else:
        assert is_within(text, cut, max_lines, max_bytes)


@given(st.lists(TEXTS, min_size=8, max_size=20).map("\n".join), st.integers(2, 6))
def test_head_and_tail_are_kept(text: str, max_lines: int) -> None:
    """With enough bytes: the first and the last lines, whole."""
    head, tail, _, _ = split_at_marker(clip_text(text, max_lines, 1000))
    whole = text.splitlines(keepends=True)
    assert head == "".join(whole[: (max_lines + 1) // 2])
    assert tail == "".join(whole[len(whole) - max_lines // 2 :])


def test_planted_split_character_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that puts a sign for half a character is seen."""
    monkeypatch.setattr(tool_results, "_decode", lambda data: data.decode("utf-8", "replace"))
    text = "漢" * 20
    assert not is_within(text, clip_text(text, 10, 20), 10, 20)


IMAGE = Image("image/png", "sha256:0", 1)


def test_clip_parts_keeps_images_and_clips_all_texts_together() -> None:
    """Images keep their places; the limits are for all texts together."""
    assert clip_parts((Text("a"), IMAGE, Text("b")), 10, 100) == ((Text("a"), IMAGE, Text("b")), None)
    (image, text, other), whole = clip_parts((IMAGE, Text("a" * 80), IMAGE, Text("b" * 80)), 10, 100)
    assert (image, other) == (IMAGE, IMAGE)
    assert text == Text(clip_text("a" * 80 + "b" * 80, 10, 100))
    assert whole == b"a" * 80 + b"b" * 80


def test_lone_surrogate_in_a_part_is_replaced() -> None:
    """Nothing is left out, so there is no other text to keep."""
    assert clip_parts((Text("a\ud800b"),), 10, 100) == ((Text("a?b"),), None)


def test_fault_parts_have_code_and_message() -> None:
    assert fault_parts(Fault("tool.timeout", "too long")) == (Text("tool.timeout: too long"),)
