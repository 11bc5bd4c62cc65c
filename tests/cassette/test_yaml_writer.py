"""What the writer of YAML writes is read back, with and without anchors."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from agentrun.cassette.yaml_writer import AnchoredText, OneLine, dump_with_anchors, dump_yaml

TEXT = st.text(st.sampled_from("ab:#-'\"{}[]|> \n\t\r%@&*!?,~0x1e.é\u2028\xa0\x85\ufeff🙂"), max_size=12)
LONG = st.builds(lambda start, text: start + "x" * 200 + text, st.sampled_from(["", "{", "[", "a"]), TEXT)
SCALARS = st.one_of(TEXT, LONG, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False), st.binary())
SCALARS |= st.sampled_from(["true", "no", "~", "1:30", "2026-01-31", "...", "---", "- a", "a: b", "=", "<<"])
DATA = st.recursive(
    SCALARS | st.lists(st.integers(), max_size=3).map(OneLine),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | LONG, inner, max_size=3),
    max_leaves=8,
)


@example([{"a": ["", {"b": "x\n\n"}]}])
@example([[["a"]]])
@given(st.lists(st.dictionaries(TEXT, DATA, max_size=3), min_size=1, max_size=3))
def test_data_is_read_back(data: list[dict[str, Any]]) -> None:
    for text in (dump_yaml(data), dump_with_anchors(data)):
        assert yaml.load(text, Loader=yaml.CSafeLoader) == data


@pytest.mark.parametrize("text", ["{long}", "one\ntwo\n", "one\ntwo", "\n one\n"])
def test_anchor_and_alias(text: str) -> None:
    first, second = AnchoredText(text), AnchoredText(text)
    first.anchor = second.anchor = "sha256-1"
    first.is_alias, second.is_alias = False, True
    data = [{"string": first}, {"string": second}]
    assert dump_yaml(data).count("sha256-1") == 2
    assert [each["string"] for each in yaml.safe_load(dump_yaml(data))] == [text, text]
