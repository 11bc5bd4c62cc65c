"""Our writer of YAML gives the text that PyYAML gives."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from agentrun.cassette import yaml_writer
from agentrun.cassette.yaml_writer import AnchoredText, OneLine, dump_with_pyyaml, dump_yaml

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
def test_text_is_that_of_pyyaml(data: list[dict[str, Any]]) -> None:
    assert dump_yaml(data) == dump_with_pyyaml(data)


@given(TEXT)
def test_text_is_read_back(text: str) -> None:
    assert yaml.safe_load(dump_yaml([{"body": text}])) == [{"body": text}]


@pytest.mark.parametrize("text", ["{long}", "one\ntwo\n", "one\ntwo", "\n one\n"])
def test_anchor_and_alias(text: str) -> None:
    first, second = AnchoredText(text), AnchoredText(text)
    first.anchor = second.anchor = "sha256-1"
    first.is_alias, second.is_alias = False, True
    data = [{"string": first}, {"string": second}]
    assert dump_yaml(data) == dump_with_pyyaml(data)
    assert [each["string"] for each in yaml.safe_load(dump_yaml(data))] == [text, text]


def test_usual_interaction_needs_no_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    body = '{\n  "messages": [\n    {"content": "It\'s é good."}\n  ]\n}\n'
    reply = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": '{"a": ' + '"x", ' * 99}}
    data = [{"request": {"method": "POST", "headers": {"accept": ["a"]}, "body": body}, "response": reply}]
    dump_yaml(data)  # it remembers the short texts
    expected = dump_with_pyyaml(data)
    monkeypatch.setattr(yaml_writer, "dump_with_pyyaml", None)
    assert dump_yaml(data) == expected
