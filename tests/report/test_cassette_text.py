"""The text of each kind of interaction, in two lines and in full."""

from __future__ import annotations

import pytest

from agentrun.cassette.file import parse_cassette_text
from agentrun.cassette.parsed_interaction import ParsedInteraction, parse_cassette
from agentrun.cassette.writer import dump_cassette
from agentrun.report.cassette_text import content_lines, interaction_lines

from .interactions import INTERACTIONS, KEY


def parse_example(name: str) -> ParsedInteraction:
    text = dump_cassette([INTERACTIONS[name][0]], {})
    (found,) = parse_cassette(parse_cassette_text(text)).interactions
    return found


@pytest.mark.parametrize("name", INTERACTIONS)
def test_interaction_in_two_lines(name: str) -> None:
    request, outcome = (line.strip() for line in interaction_lines(parse_example(name), 1))
    _, expected, answer = INTERACTIONS[name]
    start, dots, _ = answer.partition("…")
    assert request.partition(": ")[2] == expected
    assert outcome.startswith(f"→ {start}") if dots else outcome == f"→ {answer}"


@pytest.mark.parametrize("name", INTERACTIONS)
def test_full_content_of_an_interaction(name: str) -> None:
    text = "\n".join(content_lines(parse_example(name)))
    assert text.startswith("request: ")
    assert "\nreply: " in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert KEY not in text
