"""The terminal of the documentation tests detects wrong output and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .terminal import Terminal, exit_code, fits, steps

OUTPUT = "one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize(
    "shown", ["", OUTPUT, "…\n", "one\n…\nfour\n", "…\nthree\nfour\n", "one\n…\n", "one\n…\ntwo\n…\n"]
)
def test_shown_output_matches(shown: str) -> None:
    assert fits(shown, OUTPUT)


@pytest.mark.parametrize(
    "shown",
    [
        "one\n",
        "one\nfour\n",
        "one\n…\nthree\n",
        "two\n…\n",
        "o.e\n…\n",
        "four\n…\none\n",
        "…\ntwo\nfour\n",
        "one \n…\n",
    ],
)
def test_shown_output_does_not_match(shown: str) -> None:
    assert not fits(shown, OUTPUT)


def test_console_block_is_split_into_commands() -> None:
    assert steps("$ a b\none\ntwo\n$ c\n") == [("a b", "one\ntwo\n"), ("c", "")]


@pytest.mark.parametrize(
    ("command", "shown", "code"),
    [
        ("agentrun a.yaml", "fine\n", 0),
        ("agentrun a.yaml", "replay: x\ncassette.miss in turn 1: no\n", 3),
        ("agentrun a.yaml", "  provider.rate_limited: it was tried again\n", 0),
        ("agentrun a.yaml", "host.missing: OPENAI_API_KEY is not set\n", 2),
        ("agentrun validate a.yaml", "a.yaml:5:1  spec.unknown_key  no\n", 2),
        ("agentrun diff a b", "", 1),
    ],
)
def test_expected_exit_code_of_a_command(command: str, shown: str, code: int) -> None:
    assert exit_code(command, shown) == code


@pytest.mark.parametrize(
    "console",
    [
        "$ echo one\ntwo\n",
        "$ false\n",
        "$ unset NAME\n$ exit 3\n",
        "$ echo one\ncassette.miss: one\n",
        "$ exit 3\n",
        "$ agentrun --version\nnone\n",
        "$ agentrun no-such-file.yaml\n",
    ],
)
def test_wrong_output_on_a_page_is_detected(console: str, tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.follow("$ export NAME=one\n$ echo $NAME\none\n$ unset NAME\n$ echo $NAME.\n.\n$ export NAME=two\n")
        terminal.follow("$ agentrun --version\n…\n")
        with pytest.raises(AssertionError):
            terminal.follow(console)


def test_second_provider_replaces_the_first(tmp_path: Path) -> None:
    (tmp_path / "a.provider.yaml").write_text('agentrun: "1"\nturns: [{text: Hello.}]\n')
    with Terminal(tmp_path) as terminal:
        for _ in range(2):  # the second takes the port of the first
            terminal.follow("$ agentrun provider a.provider.yaml --port 8099\nhttp://127.0.0.1:8099\n")
        ended = terminal._provider
    assert ended is not None
    assert ended.returncode == 0
