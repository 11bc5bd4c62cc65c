"""The plain YAML of canonical journals is read back exactly, and any other format is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.journal.yaml_text import MAX_JOURNAL_YAML_DEPTH, YamlTextError, dump_plain_yaml, parse_plain_yaml

from .journals import JSON_VALUES, TEXTS
from .shapes import golden


@given(st.dictionaries(TEXTS, JSON_VALUES, min_size=1, max_size=4) | st.lists(JSON_VALUES, min_size=1, max_size=4))
def test_dumped_values_are_parsed_back(value: Any) -> None:
    assert parse_plain_yaml(dump_plain_yaml(value)) == value


@pytest.mark.parametrize("path", golden(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden_journals_are_parsed_and_dumped_unchanged(path: Any) -> None:
    text = path.with_suffix(".yaml").read_text(encoding="utf-8")
    facts = parse_plain_yaml(text)
    assert "\n".join(dump_plain_yaml([fact]) for fact in facts) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("\n\n", 3),
        ("- a: 1\n<<<<<<< ours\n- b: 2\n", 2),
        ("- a: 1\n    b: 2\n", 2),
        ("- a: 1\n b: 2\n", 2),
        ("- a: 1\n  a: 2\n", 2),
        ("- a: [1\n", 1),
        ("- a: two words\n", 1),
        ("- a: 'x'\n", 1),
        ("- a:b\n", 1),
        ("- a: |\n- b: 1\n", 1),
        ("-\n", 2),
        ("-a\n", 1),
        ("a: 1\n- b\n", 2),
        ('- "a: 1\n', 1),
        ("- a: &x 1\n", 1),
        ("- a: !!python/object 1\n", 1),
        ("- a: 1 # no\n", 1),
    ],
)
def test_other_yaml_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(YamlTextError) as caught:
        parse_plain_yaml(text)
    assert (caught.value.line, str(caught.value)) == (line, f"line {line} is not in the format of a canonical journal")


@pytest.mark.parametrize(("depth", "fits"), [(MAX_JOURNAL_YAML_DEPTH, True), (MAX_JOURNAL_YAML_DEPTH + 1, False)])
def test_depth_limit_of_journal_yaml(depth: int, fits: bool) -> None:
    value: Any = 1
    for _ in range(depth + 1):
        value = {"a": value}
    if fits:
        assert parse_plain_yaml(dump_plain_yaml(value)) == value
    else:
        with pytest.raises(YamlTextError):
            parse_plain_yaml(dump_plain_yaml(value))
