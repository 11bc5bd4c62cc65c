"""The canonical form of journals, in which two runs are compared."""

from typing import Any, get_type_hints

import msgspec
import yaml
from hypothesis import given
from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.core.facts import ChildStarted, Fact, ModelReplied, Record, RunStarted, RunStopped, ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.messages import VOLATILE, Assistant, Reasoning, Reply, Text, ToolCall, Usage, User
from agentrun.core.spend import BudgetShare
from agentrun.journal.canonical import canonical, fact_block
from agentrun.spec.yaml_parser import parse_plain_scalar

from .journals import ANY_FACT, JOURNAL, JSON_VALUES, RUN_STOPPED, journal, model_asked, replied, run_started

RECORDS = JOURNAL.records()

STARTED_BLOCK = """\
- run_started:
    agent: triage
    rules: 2
    params:
      team: support
    instructions: |-
      You sort tickets.

      Answer briefly.
    input:
      role: user
      parts:
        - kind: text
          text: "The printer is on fire."

- model_asked:
    turn: 1
    route: openai/gpt-4.1-mini

- model_replied:
    turn: 1
    reply:
      message:
        role: assistant
        parts:
          - kind: tool_call
            id: c1.0
            tool: search
            arguments: "{}"
          - kind: tool_call
            id: c1.1
            tool: read
            arguments: "{}"
      finish: tool_calls
      usage:
        input: 20
        output: 5
      model: gpt-4.1-mini-2025-04-14

- ruled:
    subject: c1.0
    stage: tool_call
    ruling: allow
    rules:
      - all

- tool_started:
    call: c1.0
    tool: search
"""


class Loader(yaml.SafeLoader):
    """YAML 1.2 scalars."""


def construct(loader: Any, node: Any) -> Any:
    return node.value if node.style else parse_plain_scalar(node.value)


Loader.yaml_implicit_resolvers = {}
Loader.add_constructor("tag:yaml.org,2002:str", construct)


def load_yaml(text: str) -> Any:
    return yaml.load(text, Loader)  # noqa: S506  # a safe loader


def test_canonical_form_of_a_journal() -> None:
    text = canonical(RECORDS)
    assert text.startswith(STARTED_BLOCK + "\n- tool_finished:\n")
    assert text.endswith("\n- run_stopped:\n    status: completed\n")


def test_canonical_form_omits_time_ids_hashes_and_epochs() -> None:
    """Time, ids, hashes, epochs, and where the world came from do not count; usage does."""
    other = []
    for record in RECORDS:
        fact: Any = record.fact
        if isinstance(fact, RunStarted):
            fact = replace(fact, run="other", package="sha256:other", replayed=True)
        if isinstance(fact, ModelReplied):
            fact = replace(fact, reply=replace(fact.reply, wire_id="other"))
        other.append(Record(record.seq + 7, record.at + 99, 2, "sha256:other", fact))
    assert canonical(other) == canonical(RECORDS)
    assert "wire" not in canonical(RECORDS)
    assert "sha256" not in canonical(RECORDS)


def test_different_usage_and_cost_give_different_text() -> None:
    fact = replied("Hello")
    usage = replace(fact, reply=replace(fact.reply, usage=Usage(20, 6)))
    missing = replace(fact, reply=replace(fact.reply, usage=None))
    silent = replace(fact, reply=replace(fact.reply, usage=Usage()))
    dear = replace(fact, cost=7)
    assert len({fact_block(fact), fact_block(usage), fact_block(missing), fact_block(silent), fact_block(dear)}) == 5
    assert "usage: null" in fact_block(missing)


def test_call_ids_are_shown_but_wire_ids_and_reasoning_are_not() -> None:
    parts = (Reasoning("c2VjcmV0", "openai/o3"), ToolCall("c1.0", "search", '{"q": 1}', "call_abc"))
    text = fact_block(ModelReplied("m1.1", 1, 1, Reply(Assistant(parts), "tool_calls", None, None, "x")))
    assert "c1.0" in text
    assert not any(word in text for word in ("call_abc", "c2VjcmV0", "o3", "reasoning"))


def test_output_values_named_like_internal_keys_are_kept() -> None:
    """A user's own key that is named like one of ours is not ours, and neither is its null."""
    text = fact_block(RunStopped("completed", output={"run": None, "b": {"wire_id": 2, "a": []}, "package": {}}))
    assert text.partition("output:\n")[2] == (
        "      b:\n        a: []\n        wire_id: 2\n      package: {}\n      run: null\n"
    )


@given(JSON_VALUES)
def test_canonical_text_is_yaml_that_gives_the_values_back(value: Any) -> None:
    """The text is YAML, and reading it gives back all that was shown: nothing is lost, so no two values look alike."""
    text = canonical([Record(1, 0, 1, "", RunStopped("completed", output=value))] * 2)
    assert text.isascii() or all(line.replace("\t", " ").isprintable() for line in text.split("\n"))
    assert [fact["run_stopped"]["output"] for fact in load_yaml(text)] == [value, value]


def without_volatile_values(value: Any) -> Any:
    """A value with everything volatile in it set to one thing."""
    if isinstance(value, Struct):
        hints = get_type_hints(type(value), include_extras=True)
        changes = {
            name: None
            if VOLATILE in getattr(hints[name], "__metadata__", ())
            else without_volatile_values(getattr(value, name))
            for name in value.__struct_fields__
        }
        return replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(without_volatile_values(item) for item in value if not isinstance(item, Reasoning))
    return value


@given(ANY_FACT)
def test_any_fact_can_be_rebuilt_from_its_canonical_text(fact: Fact) -> None:
    """A fact's text gives the fact back, but for what is volatile: what is left out is known without being shown."""
    ((name, shown),) = load_yaml(fact_block(fact))[0].items()
    for field, value in _required(type(fact)).items():
        shown.setdefault(field, value)
    built = msgspec.convert(_fill_parts({"type": name, **shown}), type(fact))
    assert without_volatile_values(built) == without_volatile_values(fact)


def _required(cls: type) -> dict[str, Any]:
    """Something for each volatile field that has no default."""
    info = msgspec.inspect.type_info(cls)
    assert isinstance(info, msgspec.inspect.StructType)
    made: dict[str, Any] = {}
    for field in info.fields:
        if field.required and isinstance(field.type, msgspec.inspect.Metadata):
            kind = type(field.type.type).__name__
            made[field.name] = {"BoolType": False, "IntType": 0, "StrType": ""}.get(kind)
    return made


def _fill_parts(plain: Any) -> Any:
    """The same for parts inside."""
    if isinstance(plain, list):
        return [_fill_parts(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    inner = {
        key: value if key in ("output", "fields", "params", "arguments") else _fill_parts(value)
        for key, value in plain.items()
    }
    if inner.get("kind") == "reasoning":
        return {"opaque": "", "route": "", **inner}
    if {"message", "finish"} <= inner.keys():
        return {"wire_id": None, **inner}
    if {"call", "depth"} <= inner.keys():
        return {"run": "", **inner}
    return inner


def test_missing_output_and_null_output_differ() -> None:
    assert fact_block(RunStopped("completed", output=None)) != fact_block(RunStopped("completed", output=UNSET))


def test_canonical_form_of_a_fault() -> None:
    text = fact_block(RunStopped("failed", Fault("output.invalid", "the answer", {"errors": ["a: b"]}, None)))
    assert text == (
        "- run_stopped:\n"
        "    status: failed\n"
        "    fault:\n"
        "      code: output.invalid\n"
        '      message: "the answer"\n'
        "      fields:\n"
        "        errors:\n"
        '          - "a: b"\n'
    )


def test_changed_line_of_a_text_changes_one_line() -> None:
    one = fact_block(run_started(input=User((Text("a\nb\nc\n"),)))).splitlines()
    two = fact_block(run_started(input=User((Text("a\nB\nc\n"),)))).splitlines()
    assert sum(a != b for a, b in zip(one, two, strict=True)) == 1


# --- children ----------------------------------------------------------------------------------------------

CHILD = journal(run_started(run="run-1/c1.0", agent="billing"), RUN_STOPPED)
PARENT = journal(
    run_started(),
    model_asked(),
    replied("", "billing", "billing"),
    ChildStarted("c1.0", "billing", "run-1/c1.0", BudgetShare(tokens=5)),
    ChildStarted("c1.1", "billing", "run-1/c1.1", BudgetShare()),
    ToolFinished("c1.0", (Text("Paid."),)),
)


def test_journal_of_a_child_is_nested_in_its_parent() -> None:
    text = canonical(PARENT.records(), {"run-1/c1.0": CHILD.records()})
    assert "    journal:\n      - run_started:\n          agent: billing\n          rules: 2\n" in text
    assert "\n          instructions: |-\n            You sort tickets.\n\n            Answer briefly.\n" in text
    assert "\n      - run_stopped:\n          status: completed\n\n- tool_finished:\n" in text
    told = load_yaml(text)
    assert told[3]["child_started"]["journal"] == load_yaml(canonical(CHILD.records()))
    assert "journal" not in told[5]["child_started"]


def test_journal_of_a_grandchild_is_nested() -> None:
    middle = journal(
        run_started(run="run-1/c1.0"),
        model_asked(),
        replied("", "deep"),
        ChildStarted("c1.0", "deep", "run-1/c1.0/c1.0", BudgetShare()),
    )
    journals = {"run-1/c1.0": middle.records(), "run-1/c1.0/c1.0": CHILD.records()}
    told = load_yaml(canonical(PARENT.records(), journals))
    inner = told[3]["child_started"]["journal"][3]["child_started"]["journal"]
    assert inner == load_yaml(canonical(CHILD.records()))


def test_different_child_journal_gives_different_text() -> None:
    other = journal(run_started(run="run-1/c1.0", agent="billing", params={}), RUN_STOPPED)
    texts = {canonical(PARENT.records(), {"run-1/c1.0": child.records()}) for child in (CHILD, other)}
    assert len({*texts, canonical(PARENT.records())}) == 3
