"""The form of journals that people compare."""

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.facts import Fault, ModelReplied, Record, RunStarted, RunStopped
from agentrun.core.messages import Assistant, Reply, Text, ToolCall, Usage, User
from agentrun.journal.canonical import block, canonical
from agentrun.spec.scalars import resolve

from ..packages import typed
from ..worlds import BAD, GOOD, Scripted, completion, live

RECORDS = live(typed(), Scripted([completion(BAD), completion(GOOD)])).records()

STARTED = """\
- run_started:
    agent: triage
    rules: 1
    params:
      team: support
    instructions: |-
      You sort tickets for the support team.

      Answer briefly.
    input:
      role: user
      parts:
        - kind: text
          text: "The printer of support is on fire."
"""
REPLIED = """\
- model_replied:
    effect: m1.1
    turn: 1
    attempt: 1
    reply:
      message:
        role: assistant
        parts:
          - kind: text
            text: |-
              {"queue": "kitchen"}
      finish: stop
      usage:
        input: 20
        output: 5
        cached: 0
        reasoning: 0
      model: gpt-4.1-mini-2025-04-14
"""
STOPPED = """\
- run_stopped:
    status: completed
    fault: null
    label: null
    output:
      queue: hardware
      urgent: true
"""


def test_form() -> None:
    text = canonical(RECORDS)
    assert text.startswith(STARTED + "\n- model_asked:\n")
    assert REPLIED in text
    assert text.endswith("\n" + STOPPED)


def test_equal_runs_are_equal() -> None:
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


def test_what_differs_is_seen() -> None:
    fact: Any = RECORDS[2].fact
    usage = replace(fact, reply=replace(fact.reply, usage=Usage(20, 6, 0, 0)))
    missing = replace(fact, reply=replace(fact.reply, usage=None))
    assert len({block(fact), block(usage), block(missing)}) == 3
    assert "usage: null" in block(missing)


def test_ids_of_calls() -> None:
    call = ToolCall("c1.0", "search", '{"q": 1}', "call_abc")
    fact = ModelReplied("m1.1", 1, 1, Reply(Assistant((call,)), "tool_calls", None, None, "x"))
    text = block(fact)
    assert "c1.0" in text
    assert "call_abc" not in text


def test_users_data_is_kept_whole() -> None:
    """A user's own key that is named like one of ours is not ours."""
    text = block(RunStopped("completed", output={"run": 1, "b": {"wire_id": 2, "a": []}, "package": {}}))
    assert text.partition("output:\n")[2] == (
        "      b:\n        a: []\n        wire_id: 2\n      package: {}\n      run: 1\n"
    )


TEXTS = st.text(
    alphabet="ab \n\t\"\\:#-'|>&*![]{},%@`\u00e9\u2028\x85\u00a0\x07\U0001f600", max_size=12
) | st.sampled_from(
    ["", "null", "true", "No", "1", "1e3", "-", "~", "0x1f", "2026-01-31", "<<", "=", "a: b", "\ufeff", "a\n  ", "\n"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**53, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


class Loader(yaml.SafeLoader):
    """YAML 1.2 scalars."""


def construct(loader: Any, node: Any) -> Any:
    return node.value if node.style else resolve(node.value)


Loader.yaml_implicit_resolvers = {}
Loader.add_constructor("tag:yaml.org,2002:str", construct)


@given(VALUES)
def test_says_everything(value: Any) -> None:
    """The text is YAML, and reading it gives back all that was shown: nothing is lost, so no two values look alike."""
    text = canonical([Record(1, 0, 1, "", RunStopped("completed", output=value))] * 2)
    assert text.isascii() or all(line.replace("\t", " ").isprintable() for line in text.split("\n"))
    read = yaml.load(text, Loader)  # noqa: S506  # a safe loader
    assert [fact["run_stopped"]["output"] for fact in read] == [value, value]


def test_no_output_and_null_differ() -> None:
    assert block(RunStopped("completed", output=None)) != block(RunStopped("completed", output=UNSET))


def test_fault() -> None:
    text = block(RunStopped("failed", Fault("output.invalid", "the answer", {"errors": ["a: b"]}, None)))
    assert text == (
        "- run_stopped:\n"
        "    status: failed\n"
        "    fault:\n"
        "      code: output.invalid\n"
        '      message: "the answer"\n'
        "      fields:\n"
        "        errors:\n"
        '          - "a: b"\n'
        "      hint: null\n"
        "    label: null\n"
    )


def test_lines_of_a_text_are_lines() -> None:
    fact: Any = RECORDS[0].fact
    one = block(replace(fact, input=User((Text("a\nb\nc\n"),)))).splitlines()
    two = block(replace(fact, input=User((Text("a\nB\nc\n"),)))).splitlines()
    assert sum(a != b for a, b in zip(one, two, strict=True)) == 1
