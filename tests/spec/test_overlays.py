"""Profiles and `--set`: how overlays are merged, and where their problems point."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.compiler.spec_reader import read_spec
from agentrun.spec.document_loader import apply_overlay, parse_setting
from agentrun.spec.problems import DocumentError, Source
from agentrun.spec.tree import MappingNode, place_at_path, plain_data
from agentrun.spec.yaml_parser import parse_yaml_document

from ..documents import write


def tree(text: str, name: str = "base.yaml") -> MappingNode:
    root = parse_yaml_document(Source(Path("/p") / name, name, text))
    assert isinstance(root, MappingNode)
    return root


def merge_texts(base: str, over: str) -> Any:
    return plain_data(apply_overlay(tree(base), tree(over, "over.yaml")))


@pytest.mark.parametrize(
    ("base", "over", "result"),
    [
        ("{a: 1}", "{b: 2}", {"a": 1, "b": 2}),
        ("{a: 1}", "{a: 2}", {"a": 2}),
        ("{a: {b: 1, c: 2}}", "{a: {c: 3, d: 4}}", {"a": {"b": 1, "c": 3, "d": 4}}),
        ("{a: {b: {c: {d: 1}}}}", "{a: {b: {c: {e: 2}}}}", {"a": {"b": {"c": {"d": 1, "e": 2}}}}),
        ("{a: [1, 2]}", "{a: [3]}", {"a": [3]}),
        ("{a: [{b: 1}]}", "{a: [{c: 2}]}", {"a": [{"c": 2}]}),
        ("{a: {b: 1}}", "{a: 5}", {"a": 5}),
        ("{a: 5}", "{a: {b: 1}}", {"a": {"b": 1}}),
        ("{a: {b: 1}}", "{a: [1]}", {"a": [1]}),
        ("{a: 1, b: 2}", "{a: null}", {"b": 2}),
        ("{a: 1, b: 2}", "{a: ~}", {"b": 2}),
        ("{a: 1, b: 2}", "a:\n", {"b": 2}),
        ("{a: {b: 1, c: 2}}", "{a: {b: null}}", {"a": {"c": 2}}),
        ("{a: {b: 1}}", "{a: {b: null}}", {"a": {}}),
        ("{a: 1}", "{b: null}", {"a": 1}),
        ("{a: 1}", "{b: {c: null, d: 2}}", {"a": 1, "b": {"d": 2}}),
        ("{a: 1}", "{a: {b: {c: null}}}", {"a": {"b": {}}}),
        ("{a: 1}", '{a: "null"}', {"a": "null"}),
        ("{a: 1}", "{a: false}", {"a": False}),
        ("{a: 1}", "{a: 0}", {"a": 0}),
        ('{a: "x"}', '{a: ""}', {"a": ""}),
        ("{a: {b: 1}}", "{a: {}}", {"a": {"b": 1}}),
        ("{a: 1}", "{a: [null]}", {"a": [None]}),
    ],
)
def test_overlay_merges_replaces_and_removes(base: str, over: str, result: Any) -> None:
    assert merge_texts(base, over) == result


def test_places_point_into_overlay_or_base() -> None:
    """What comes from the overlay is looked for in the overlay, what stays in the base."""
    whole = apply_overlay(tree("a: {b: 1}\nc: 2\n"), tree("\n\na: {d: 3}\n", "over.yaml"))
    assert str(place_at_path(whole, ["a", "d"])) == "over.yaml:3:8"
    assert str(place_at_path(whole, ["a", "b"])) == "base.yaml:1:8"
    assert str(place_at_path(whole, ["c"])) == "base.yaml:2:4"


def test_overlay_does_not_change_the_base() -> None:
    base = tree("{a: {b: 1, c: 2}}")
    apply_overlay(base, tree("{a: {b: null, c: 9}}"))
    assert plain_data(base) == {"a": {"b": 1, "c": 2}}


LETTERS = st.sampled_from("abc")
LEAVES = st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2)
TREES = st.recursive(LEAVES, lambda inner: st.dictionaries(LETTERS, inner, max_size=3), max_leaves=8)
MAPS = st.dictionaries(LETTERS, TREES, max_size=3)


def over(base: Any, *overlays: Any) -> Any:
    whole = tree(str(base))
    for one in overlays:
        whole = apply_overlay(whole, tree(str(one).replace("None", "null")))
    return plain_data(whole)


@given(MAPS, MAPS)
def test_overlays_are_idempotent_and_override_the_base(base: Any, overlay: Any) -> None:
    assert over(base, {}) == base
    assert over({}, base) == base
    assert over(base, base) == base
    assert over(base, overlay, overlay) == over(base, overlay)
    assert over(base, dict.fromkeys(base)) == {}
    for key, value in overlay.items():
        if not isinstance(value, dict):
            assert over(base, overlay)[key] == value


# --- --set --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("budgets.turns=3", {"budgets": {"turns": 3}}),
        ("name=x", {"name": "x"}),
        ("a.b.c=true", {"a": {"b": {"c": True}}}),
        ("a=", {"a": ""}),
        ("a=  ", {"a": ""}),
        ("a=null", {"a": None}),
        ("a=b=c", {"a": "b=c"}),
        ("a=no", {"a": "no"}),
        ("a=[1, x]", {"a": [1, "x"]}),
        ("a={b: 1}", {"a": {"b": 1}}),
        ('a="1"', {"a": "1"}),
        ("a=1.5", {"a": 1.5}),
        ("tools.x.description=a: b", {"tools": {"x": {"description": {"a": "b"}}}}),
    ],
)
def test_setting_is_parsed_into_an_overlay(text: str, result: Any) -> None:
    assert plain_data(parse_setting(text)) == result


@pytest.mark.parametrize("text", ["", "a", "=1", ".=1", "a.=1", ".a=1", "a..b=1", "budgets.turns"])
def test_malformed_setting_is_refused(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_setting(text)
    (problem,) = caught.value.problems
    assert problem.code == "spec.setting"
    assert problem.file == "--set"


@pytest.mark.parametrize("value", ["[1", "{a: 1, a: 2}", "*x", "!!python/name:os.system", "012", "a\n---\nb"])
def test_setting_with_an_invalid_value_is_refused(value: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_setting(f"a.b={value}")
    assert all(problem.file == "--set" for problem in caught.value.problems)


# --- both on a spec -----------------------------------------------------------------------------------------

SPEC = """\
agentrun: "1"
name: a
model: {provider: openai, name: m, stream: true}
instructions: Be kind.
budgets: {turns: 5, tokens: 1k}
profiles:
  ci:
    model: {stream: false}
    budgets: {tokens: null, time: 2m}
    instructions: {file: ci.md}
  broken:
    budgets: {turns: many}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    write(tmp_path, {"a.yaml": SPEC, "ci.md": "In CI.\n", "set.md": "Set.\n"})
    return tmp_path / "a.yaml"


def test_profile_is_applied(spec: Path) -> None:
    read = read_spec(spec, "ci").spec
    assert read is not None
    assert (read.agent.model.stream, read.agent.model.name) == (False, "m")
    assert plain_data(read.root)["budgets"] == {"turns": 5, "time": "2m"}
    assert read.agent.instructions == "In CI.\n"


def test_settings_come_last_and_in_order(spec: Path) -> None:
    given = [
        "budgets.turns=7",
        "budgets.turns=8",
        "model.stream=true",
        "instructions={file: set.md}",
        "budgets.time=null",
    ]
    read = read_spec(spec, "ci", given).spec
    assert read is not None
    assert plain_data(read.root)["budgets"] == {"turns": 8}
    assert read.agent.model.stream is True
    assert read.agent.instructions == "Set.\n"


def test_problems_point_at_the_overlay(spec: Path) -> None:
    (profile,) = read_spec(spec, "broken").problems
    assert (profile.code, profile.line, profile.column) == ("spec.wrong_type", 12, 22)
    (given,) = read_spec(spec, None, ["budgets.turns=many"]).problems
    assert (given.code, given.file) == ("spec.wrong_type", "--set")
    (unknown,) = read_spec(spec, None, ["budgets.turn=3"]).problems
    assert (unknown.code, unknown.hint) == ("spec.unknown_key", 'did you mean "turns"?')
    (removed,) = read_spec(spec, None, ["model.name=null"]).problems
    assert removed.code == "spec.missing_key"


def test_unknown_profile_is_reported_with_a_hint(spec: Path) -> None:
    (near,) = read_spec(spec, "brokn").problems
    assert (near.code, near.hint) == ("spec.unknown_profile", 'did you mean "broken"?')
    (far,) = read_spec(spec, "production").problems
    assert (far.code, far.hint) == ("spec.unknown_profile", "profiles: ci, broken")
