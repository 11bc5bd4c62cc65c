"""The YAML loader of cassettes: limits, refused features and line numbers."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentrun.cassette import yaml_loader as module
from agentrun.cassette.yaml_loader import (
    MAX_CASSETTE_ALIASES,
    MAX_CASSETTE_DEPTH,
    CassetteFormatError,
    LinedMapping,
    load_yaml,
)

from ..steps import at_most


def load_error(text: str) -> CassetteFormatError:
    with pytest.raises(CassetteFormatError) as caught:
        load_yaml(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        (
            "[1, 2.5, true, null, ~, text, '1', \"1\", no, 2026-01-31]",
            [1, 2.5, True, None, None, "text", "1", "1", False, "2026-01-31"],
        ),
        ("1: a\ntrue: b", {"1": "a", "true": "b"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("a: !!binary |\n  aGVs\n  bG8=\n", {"a": b"hello"}),
        ("a: !!str 1", {"a": "1"}),
        ("a: ! 1", {"a": "1"}),
        ("- &x {a: 1}\n- *x", [{"a": 1}, {"a": 1}]),
        ("- &x text\n- *x", ["text", "text"]),
        ("[0E0, 012, 1:30, 1_000, =, <<]", ["0E0", 10, 90, 1000, "=", "<<"]),
        ("", None),
    ],
)
def test_values_are_loaded(text: str, value: Any) -> None:
    assert load_yaml(text) == value


def test_mappings_have_their_line() -> None:
    data = load_yaml("a:\n  b: 1\nc:\n- d: 2\n")
    assert (data.line, data["a"].line, data["c"][0].line) == (1, 2, 4)
    assert isinstance(data, LinedMapping)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2", 2),
        ("a: !!python/object/apply:os.system [x]", 1),
        ("a: 1\nb: !!python/name:os.system ''", 2),
        ("a: !!int '1'", 1),
        ("a: !!set {b}", 1),
        ("a: !!binary '***'", 1),
        ("a: " + "1" * 5000, 1),
        ("? [a]\n: 1", 1),
        ("a: 1\n---\nb: 2", 2),
        ("- *x", 1),
        ("&x [*x]", 1),
        ("a: 1\n b: 2", 2),
        ("a: \x07", 1),
        ("a: 1\n\tb: 2", 2),
    ],
)
def test_refused_yaml_has_its_line(text: str, line: int) -> None:
    assert load_error(text).line == line


def test_binary_tag_of_a_key_is_ignored() -> None:
    assert load_yaml("!!binary aGk=: 1") == {"aGk=": 1}, "a key is its text"


def test_depth_limit() -> None:
    assert load_yaml("[" * MAX_CASSETTE_DEPTH + "]" * MAX_CASSETTE_DEPTH)
    load_error("[" * (MAX_CASSETTE_DEPTH + 1) + "]" * (MAX_CASSETTE_DEPTH + 1))


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000])
def test_deep_nesting_is_refused_quickly(text: str) -> None:
    """libyaml's own loader overruns the stack of the process here."""
    with at_most(8_000):
        load_error(text)


def test_alias_limit() -> None:
    def text(uses: int) -> str:
        return "a: &x [1]\nb: [" + ", ".join(["*x"] * uses) + "]"

    assert len(load_yaml(text(MAX_CASSETTE_ALIASES))["b"]) == MAX_CASSETTE_ALIASES
    load_error(text(MAX_CASSETTE_ALIASES + 1))


def test_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert load_error("\n".join(lines)).message == f"more than {module.MAX_CASSETTE_NODES} nodes"


def test_node_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CASSETTE_NODES", 4)
    assert load_yaml("[1, 2, 3]") == [1, 2, 3]
    load_error("[1, 2, 3, 4]")


YAML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(1 - 2**53, 2**53 - 1) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(YAML_VALUES, st.booleans())
def test_output_of_pyyaml_is_loaded(value: Any, flow: bool) -> None:
    """All that vcrpy could write with plain data, in both styles, as it would read it itself."""
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    assert load_yaml(text) == yaml.safe_load(text)
