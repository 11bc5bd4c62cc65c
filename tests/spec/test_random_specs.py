"""Random agents: schema and models accept the same documents, and a single fault is reported at its place.
in one place is refused by both, and the problem points at that place."""

import random
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.compiler.spec_reader import read_spec
from agentrun.spec.document_loader import Document, load_document
from agentrun.spec.problems import Source
from agentrun.spec.tree import plain_data
from agentrun.spec.v1.agent import Agent

from ..documents import split_into_files, write
from ..schemas import Node, Steps, keys, keys_in, nodes, validator
from .random_documents import agent, write_yaml
from .schema_edges import edges, models_take, with_value

SEEDS = st.integers(0, 2**40)
MANY = settings(max_examples=max(300, settings.default.max_examples if settings.default else 0))
PART_FILES = {"tools.file", "policy.file", "budgets.file"}


def load_text(text: str) -> Document:
    return load_document(Source(Path("/p/a.yaml"), "a.yaml", text), "agent")


def test_schema_and_models_accept_random_agents() -> None:
    """Taken by schema and models alike; together they use every key there is."""
    seen: set[str] = set()

    @MANY
    @given(SEEDS)
    def each(seed: int) -> None:
        document = agent(seed)
        read = load_text(write_yaml(document, seed))
        assert read.problems == ()
        assert read.root is not None
        assert plain_data(read.root) == document
        assert validator("agent").is_valid(document)
        msgspec.convert(plain_data(read.root), Agent)
        seen.update(keys_in("agent", document))

    each()
    assert keys("agent") - seen == PART_FILES


def test_agent_in_one_file_equals_the_agent_in_many_files() -> None:
    """The same agent in one file and in many; this uses the keys that the test above leaves out."""
    seen: set[str] = set()

    @settings(max_examples=60)
    @given(SEEDS)
    def each(seed: int) -> None:
        whole = agent(seed, files=False)
        spec, files = split_into_files(whole)
        with tempfile.TemporaryDirectory() as folder:
            write(
                Path(folder), {**files, "whole.yaml": write_yaml(whole, seed), "parts.yaml": write_yaml(spec, seed + 1)}
            )
            one, other = (read_spec(Path(folder, name)) for name in ("whole.yaml", "parts.yaml"))
        assert one.problems == other.problems == ()
        assert one.spec is not None
        assert other.spec is not None
        assert one.spec.agent == other.spec.agent
        seen.update(keys_in("agent", spec))

    each()
    assert seen >= PART_FILES


# --- one thing broken ---------------------------------------------------------------------------------------


class BrokenDocument(NamedTuple):
    """A document with one fault, and where it must be found."""

    fault: str
    key: str
    document: Any
    at: Steps
    """The way to the place of the fault."""
    is_key: bool
    code: str


WRONG_TYPES: dict[str, list[Any]] = {
    "string": ["x"],
    "integer": [5],
    "number": [1.5],
    "boolean": [True],
    "array": [[]],
    "object": [{}],
    "null": [None],
}


def wrong_types(node: Node) -> Iterator[Any]:
    allowed = {node.says["type"]} if isinstance(node.says["type"], str) else set(node.says["type"])
    if "number" in allowed:
        allowed.add("integer")
    for kind, values in WRONG_TYPES.items():
        yield from values if kind not in allowed else ()


def faults(node: Node) -> Iterator[tuple[str, Any, Steps, bool, str]]:
    """The faults that a value can have: its name, the broken value, where it is below the value, its code."""
    says, value = node.says, node.value
    if isinstance(value, dict):
        if says.get("additionalProperties") is False:
            yield "unknown key", {**value, "zz_unknown": 1}, ("zz_unknown",), True, "spec.unknown_key"
        if "propertyNames" in says and value:
            inside = next(iter(value.values()))
            yield "bad name", {**value, "Bad Name": inside}, ("Bad Name",), True, "spec.name"
        for key in says.get("required", ()):
            less = {name: inner for name, inner in value.items() if name != key}
            yield "missing key", less, (), True, "spec.missing_key"
    if "type" in says:
        yield from (("wrong type", wrong, (), False, "spec.wrong_type") for wrong in wrong_types(node))
    if "enum" in says and isinstance(value, str):
        yield "wrong value", "zz-none", (), False, "spec.wrong_value"
        if "type" not in says:
            yield "null", None, (), False, "spec.wrong_value"
    for wrong, good in edges(says, value):
        if not good and not isinstance(wrong, dict) and not (isinstance(wrong, (str, list)) and len(wrong) > 300):
            is_text = isinstance(wrong, str) and not re.fullmatch(says.get("pattern", ".*"), wrong)
            yield "out of range", wrong, (), False, "spec.wrong_text" if is_text else "spec.out_of_range"


SCHEMAS = ("params.*", "args", "actions.*", "output.schema")
"""How keys of JSON Schemas end."""
SCHEMA_FILES = tuple(f"{key}.file" for key in SCHEMAS)


def broken_documents(document: Any) -> Iterator[BrokenDocument]:
    """The document with each fault that it can have."""
    for node in nodes("agent", document):
        for fault, value, below, is_key, code in faults(node):
            # Without `file`, or with `{file: 5}`, it is a JSON Schema to ours; its own check refuses it.
            if node.key.endswith({"missing key": SCHEMAS, "wrong type": SCHEMA_FILES}.get(fault, ())):
                continue
            code = "spec.version" if node.key == "agentrun" else code
            yield BrokenDocument(
                fault, node.key, with_value(document, node.at, value), (*node.at, *below), is_key, code
            )


def models_must_refuse(case: BrokenDocument) -> bool:
    """Not so where a model is looser on purpose: one target (spec/v1/policy.py), a profile, a schema in a file."""
    is_target = case.key.startswith("policy.rules.[].") and case.code == "spec.wrong_text"
    is_unknown = case.fault == "unknown key" and case.key.endswith(("profiles.*", *SCHEMAS))
    return not (is_target or is_unknown or case.key.endswith(SCHEMA_FILES))


def place(text: str, at: Steps, is_key: bool) -> tuple[int, int]:
    """Line and column of a value or its key, as another reader of YAML sees them."""
    node: Any = yaml.compose(text, Loader=yaml.CSafeLoader)
    found = node.start_mark
    for step in at:
        if isinstance(step, int):
            node = node.value[step]
            found = node.start_mark
        else:
            key, node = next((key, inner) for key, inner in node.value if key.value == step)
            found = key.start_mark if is_key else node.start_mark
    return found.line + 1, found.column + 1


def check(case: BrokenDocument, seed: int, read: Callable[[str], Document] = load_text) -> None:
    text = write_yaml(case.document, seed)
    problems = read(text).problems
    assert problems, f"{case.fault} at {case.key} is not seen"
    assert not validator("agent").is_valid(case.document)
    assert {(problem.line, problem.column) for problem in problems} == {place(text, case.at, case.is_key)}
    assert case.code in {problem.code for problem in problems}
    if models_must_refuse(case):
        assert not models_take(case.document), f"the models take {case.fault} at {case.key}"


def test_random_fault_is_refused_at_its_place() -> None:
    seen: set[str] = set()

    @MANY
    @given(SEEDS)
    def each(seed: int) -> None:
        cases = list(broken_documents(agent(seed)))
        for case in random.Random(seed).sample(cases, min(3, len(cases))):  # noqa: S311 nothing secret
            check(case, seed)
            seen.add(case.fault)

    each()
    assert seen == {"unknown key", "bad name", "missing key", "wrong type", "wrong value", "null", "out of range"}


def test_every_fault_of_one_agent_is_refused_at_its_place() -> None:
    """No sampling here: everything that can be wrong with one document."""
    cases = list(broken_documents(agent(3)))
    assert len(cases) > 500
    for case in cases:
        check(case, 3)


def test_planted_wrong_place_is_detected() -> None:
    """A reader that points at the line above, or at the top, is caught."""

    def above(text: str) -> Document:
        return load_text("\n".join(text.split("\n")[1:])) if text.startswith("# ") else load_text(f"\n{text}")

    case = next(
        case for case in broken_documents(agent(1)) if case.fault == "unknown key" and case.at[:-1] == ("model",)
    )
    check(case, 1)
    with pytest.raises(AssertionError):
        check(case, 1, above)
