"""The live screen, seen through a real terminal device."""

import os
import re
from contextlib import closing, suppress
from pathlib import Path
from threading import enumerate as threads

import pytest

from agentrun.core.facts import ModelAsked, ModelFailed, ModelReplied
from agentrun.report.formatting import OutputLine, make_paragraph
from agentrun.report.run_renderer import RunRenderer
from agentrun.report.screen import (
    MAX_STREAMED_TEXT,
    SPINNER,
    LiveScreen,
    PlainScreen,
    delta_key,
    screen_for,
    show_record,
)

from .rendered_runs import HOSTILE, lines_of, text_of, typical
from .terminals import terminal, terminal_text, unexpected_sequences


def screen_threads() -> list[str]:
    return [thread.name for thread in threads() if thread.name == "agentrun-screen"]


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize(("columns", "rows"), [(20, 6), (20, 40), (80, 24), (80, 3), (200, 50)])
def test_finished_run_leaves_only_its_lines(columns: int, rows: int, color: bool) -> None:
    """At the end there is the story and nothing else, as if it had been printed plainly."""
    run = typical().run
    run.finish()
    story = RunRenderer(run.first)
    with terminal(columns, rows) as seen:
        screen = LiveScreen(seen.stream, color=color)
        with closing(screen):
            for record in run.records:
                show_record(record, story, screen, "run-1")
                if isinstance(record.fact, ModelAsked):
                    for piece in ("I look ", "them up.\n", "漢字 " * 30):
                        screen.delta(delta_key("run-1", record.fact.effect), piece)
                        screen.status(story.usage)
            assert screen_threads()
        assert not screen_threads()
        seen.drained()
        plain = text_of(lines_of(run.first, run.records))
        assert seen.shown.partition("\n<")[0] == terminal_text(plain, columns, rows)
        assert seen.cursor_visible
        assert unexpected_sequences(seen.raw) == []
        assert (re.search(rb"\x1b\[[0-9;]*m", seen.raw) is not None) == color


def test_live_region_shows_stream_end_and_status() -> None:
    """The end of what streams, how things stand, and lines above both."""
    with terminal(40, 10) as seen, closing(LiveScreen(seen.stream, color=False)) as screen:
        screen.line(OutputLine("turn 1"))
        screen.status("turn 1 of 12")
        screen.delta("m1.1", "".join(f"line {number}\n" for number in range(50)))
        seen.until(lambda shown: "line 49" in shown)
        lines = seen.shown.splitlines()
        assert lines[:-1] == ["turn 1", "line 46", "line 47", "line 48", "line 49"]
        assert lines[-1].endswith(" turn 1 of 12")
        assert not seen.cursor_visible
        screen.line(OutputLine("told", indent=1))
        seen.until(lambda shown: shown.splitlines()[:3] == ["turn 1", "  told", "line 46"])
        screen.delta("m1.1", None)
        seen.until(lambda shown: "line" not in shown)
        screen.delta("m1.1", "again")
        seen.until(lambda shown: shown.splitlines()[2] == "again")
        assert seen.shown.splitlines()[:2] == ["turn 1", "  told"]


def test_spinner_moves() -> None:
    """Something changes although nothing happens."""
    with terminal() as seen, closing(LiveScreen(seen.stream)) as screen:
        screen.status("asking")
        for frame in (*SPINNER, SPINNER[0]):
            seen.until(lambda shown, frame=frame: shown.startswith(frame))  # type: ignore[misc]  # bound for the loop


def test_status_shows_the_time_and_tokens_of_a_model_request() -> None:
    now = [100.0]
    with terminal() as seen, closing(LiveScreen(seen.stream, color=False, clock=lambda: now[0])) as screen:
        screen.status("turn 1 of 12")
        screen.begin_request("m1.1")
        seen.until(lambda shown: shown.endswith("turn 1 of 12 · model 0s"))
        now[0] = 112.9
        seen.until(lambda shown: shown.endswith("turn 1 of 12 · model 12s"))
        for _ in range(2):
            screen.delta("m1.1", "words " * 400)
        seen.until(lambda shown: shown.endswith("· model 12s, ~1.2k tokens"))
        screen.delta("m1.1", None)
        seen.until(lambda shown: shown.endswith("· model 12s"))
        screen.begin_request("child/m1.1")
        screen.delta("child/m1.1", "1234")
        now[0] = 113.0
        seen.until(lambda shown: shown.endswith("· model 13s, ~1 token"))
        screen.end_request("m1.1")
        seen.until(lambda shown: shown.endswith("· model 0s, ~1 token"))
        screen.end_request("child/m1.1")
        seen.until(lambda shown: shown.endswith("turn 1 of 12"))


def test_status_counts_the_request_of_a_run_from_its_record_to_its_reply() -> None:
    run = typical().run
    run.finish()
    renderer = RunRenderer(run.first)
    with terminal(200) as seen, closing(LiveScreen(seen.stream, color=False)) as screen:
        for record in run.records:
            show_record(record, renderer, screen, "run-1")
            if isinstance(record.fact, ModelAsked):
                seen.until(lambda shown: "· model " in shown)
            if isinstance(record.fact, ModelReplied | ModelFailed):
                seen.until(lambda shown: "· model " not in shown)


@pytest.mark.parametrize("reflows", [False, True])
def test_resize_leaves_no_remains(reflows: bool) -> None:
    """Narrow and wide: nothing is left over and no line is lost, whatever the terminal does with its own."""
    with terminal(80, 60) as seen, closing(LiveScreen(seen.stream, color=False)) as screen:
        lines: list[str] = []
        screen.status("status " * 20)
        screen.delta("m1.1", "stream " * 100)
        for place, columns in enumerate([20, 80, 33, 120, 20, 7]):
            lines.append(f"line {place}")
            screen.line(OutputLine(lines[-1]))
            seen.until(lambda shown: is_drawn(shown, lines, seen.screen.columns))
            seen.resize(columns, 60, reflows=reflows)
            seen.until(lambda shown: is_drawn(shown, lines, seen.screen.columns))
        screen.close()
        seen.until(lambda shown: shown.splitlines() == lines)
        assert seen.cursor_visible


def is_drawn(shown: str, lines: list[str], columns: int) -> bool:
    """Whether there are the lines and a region of five rows as wide as they can be."""
    found = shown.splitlines()
    widths = [len(row) for row in found[len(lines) :]]
    return found[: len(lines)] == lines and len(widths) == 5 and max(widths) == columns - 1


def test_screen_pauses_during_aside() -> None:
    """While somebody is asked, nothing is drawn and lines wait."""
    with terminal() as seen, closing(LiveScreen(seen.stream, color=False)) as screen:
        screen.status("asking")
        screen.delta("m1.1", "streaming")
        seen.until(lambda shown: "streaming" in shown)
        with screen.aside():
            seen.stream.write("really? ")
            seen.stream.flush()
            screen.line(OutputLine("one"))
            screen.status("still asking")
            screen.delta("m1.1", "more")
            screen.line(OutputLine("two"))
            seen.until(lambda shown: shown == "really?")
            assert seen.cursor_visible
            seen.stream.write("yes\n")
            seen.stream.flush()
        seen.until(lambda shown: shown.splitlines()[:4] == ["really? yes", "one", "two", "streamingmore"])


def test_empty_status_clears_the_region() -> None:
    with terminal() as seen, closing(LiveScreen(seen.stream, color=False)) as screen:
        screen.delta("m1.1", "streaming")
        screen.line(OutputLine("one"))
        screen.status("asking")
        seen.until(lambda shown: "streaming" in shown)
        screen.status("")
        seen.until(lambda shown: shown == "one")
        assert seen.cursor_visible


# --- hostile texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 100_000])
def test_escape_sequences_in_chunks_are_neutralised(size: int) -> None:
    """Sequences that come in pieces do not join into something that acts."""
    with terminal(40, 10) as seen, closing(LiveScreen(seen.stream, color=False)) as screen:
        for text in HOSTILE:
            for start in range(0, min(len(text), 40 * size), size):
                screen.delta("m1.1", text[start : start + size])
                screen.status(text[:50])
            for line in make_paragraph(text):
                screen.line(line)
            screen.delta("m1.1", None)
        screen.close()
        seen.drained()
        assert unexpected_sequences(seen.raw) == []
        assert len(seen.raw) > 1000


@pytest.mark.parametrize(
    "text", [text for text in HOSTILE if set(text) - set("x") and not set("\ud800\ue000") & set(text)]
)
def test_unexpected_sequences_are_found(text: str) -> None:
    assert unexpected_sequences(b"\x1b[?25l" + text.encode())
    assert unexpected_sequences(b"\x1b[?25l\x1b[?7ltext\r\n\x1b[3A\x1b[33mx\x1b[0m\r\x1b[J") == []


def test_streamed_secret_is_masked() -> None:
    with terminal(40, 10) as seen, closing(LiveScreen(seen.stream)) as screen:
        screen.status("asking")
        screen.delta("m1.1", "the key is sk-ant-a1b2c3d4")
        screen.delta("m1.1", "a1b2c3d4a1b2c3d4 indeed")
        seen.until(lambda shown: "the key is *** indeed" in shown)


def test_streamed_text_is_kept_up_to_a_limit() -> None:
    """The end of the latest text, and of others only what is short."""
    with terminal() as seen:
        screen = LiveScreen(seen.stream)
        for effect in ("m1.1", "m2.1", "m3.1"):
            for _ in range(10):
                screen.delta(effect, "x" * 100_000)
                assert screen._texts == {effect: "x" * MAX_STREAMED_TEXT}
        for effect in ("a", "b", "c"):
            screen.delta(effect, effect * 1000)
        assert list(screen._texts) == ["a", "b", "c"]
        screen.close()


# --- terminals that go away --------------------------------------------------------------------------------


def test_closed_terminal_does_not_break_the_screen() -> None:
    with terminal() as seen, closing(LiveScreen(seen.stream)) as screen:
        screen.status("asking")
        seen.until(lambda shown: "asking" in shown)
        seen.hang_up()
        for place in range(100):
            screen.line(OutputLine(f"line {place}"))
            screen.delta("m1.1", "text")
            screen.status("still there")
        screen.close()
        assert not screen_threads()


def test_screen_can_be_closed_twice_and_still_prints() -> None:
    with terminal() as seen:
        screen = LiveScreen(seen.stream, color=False)
        screen.status("asking")
        screen.close()
        screen.close()
        screen.status("late")
        screen.line(OutputLine("late line"))
        assert not screen_threads()
        seen.until(lambda shown: shown == "late line")
        assert seen.cursor_visible


def test_exception_closes_the_screen() -> None:
    with terminal() as seen:
        with suppress(KeyboardInterrupt), closing(LiveScreen(seen.stream)) as screen:
            screen.status("asking")
            seen.until(lambda shown: "asking" in shown)
            raise KeyboardInterrupt
        seen.until(lambda shown: shown == "")
        assert seen.cursor_visible
        assert not screen_threads()


# --- which screen ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "live", "kind", "color"),
    [
        ({"TERM": "xterm"}, True, LiveScreen, True),
        ({"TERM": "xterm"}, False, PlainScreen, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, LiveScreen, False),
        ({"TERM": "dumb"}, True, PlainScreen, False),
        ({}, True, PlainScreen, False),
    ],
)
def test_screen_for_a_terminal_follows_the_environment(
    environment: dict[str, str], live: bool, kind: type, color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with terminal() as seen:
        screen = screen_for(seen.stream, live=live)
        assert (type(screen), screen._color) == (kind, color)
        assert screen_for(seen.stream, live=live, color=False)._color is False
        seen.stream.close()
        assert type(screen_for(seen.stream, live=True)) is PlainScreen


def test_screen_for_a_file_is_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with open(os.devnull, "w", encoding="utf-8") as stream:
        assert type(screen_for(stream, live=True)) is PlainScreen
    screen_for(None, live=True).line(OutputLine("nobody hears it"))


def test_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with terminal(20, 10) as seen, closing(screen_for(seen.stream, live=True)) as screen:
        screen.status("asking")
        screen.delta("m1.1", "text")
        screen.line(OutputLine("one", "bad", 1))
        seen.drained()
        assert seen.raw == b"  one\r\n"
