"""Handmade journals, and strategies for facts of every kind."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from agentrun.core.facts import (
    RULES_VERSION,
    Fact,
    ModelAsked,
    ModelReplied,
    Record,
    ResultsGiven,
    Ruled,
    RunStarted,
    RunStopped,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.messages import Assistant, Reply, Text, ToolCall, Usage, user_message
from agentrun.journal.storage import MemoryJournal

GOLDEN = Path(__file__).parent / "golden"
KINDS: tuple[type[Fact], ...] = get_args(Fact)


def journal(*facts: Fact, onto: Iterable[Record] = ()) -> MemoryJournal:
    """A journal of these facts, a second apart."""
    made = MemoryJournal(onto)
    for fact in facts:
        seq = len(made.records()) + 1
        made.append(Record(seq, 1000 * seq, made.epoch, made.head, fact))
    return made


def run_started(**changes: Any) -> RunStarted:
    said_so = {
        "run": "run-1",
        "package": "sha256:1",
        "replayed": False,
        "agent": "triage",
        "rules": RULES_VERSION,
        "params": {"team": "support"},
        "instructions": "You sort tickets.\n\nAnswer briefly.",
        "input": user_message("The printer is on fire."),
    }
    return RunStarted(**{**said_so, **changes})


def model_asked(turn: int = 1, attempt: int = 1) -> ModelAsked:
    return ModelAsked(f"m{turn}.{attempt}", turn, attempt, "openai/gpt-4.1-mini", 100)


def replied(text: str = "", *tools: str, turn: int = 1, attempt: int = 1) -> ModelReplied:
    """A reply that says a text and calls tools, all with `{}`."""
    parts = [ToolCall(f"c{turn}.{place}", tool, "{}", f"call_{place}") for place, tool in enumerate(tools)]
    message = Assistant((*([Text(text)] if text else []), *parts))
    reply = Reply(message, "tool_calls" if tools else "stop", Usage(20, 5), "gpt-4.1-mini-2025-04-14", "chatcmpl-1")
    return ModelReplied(f"m{turn}.{attempt}", turn, attempt, reply)


def allowed_call(call: str, tool: str) -> tuple[Fact, ...]:
    """What a call that may run leaves in a journal."""
    return (
        Ruled(call, "tool_call", "allow", ("all",)),
        ToolStarted(call, tool, f"sha256:{call}"),
        ToolFinished(call, (Text(f"{tool} ran"),)),
    )


RUN_STOPPED = RunStopped("completed")
WITH_TOOLS = (
    run_started(),
    model_asked(),
    replied("", "search", "read"),
    *allowed_call("c1.0", "search"),
    *allowed_call("c1.1", "read"),
    ResultsGiven(1),
    model_asked(2),
    replied("Hello", turn=2),
    RUN_STOPPED,
)
JOURNAL = journal(*WITH_TOOLS)
LINES = JOURNAL.text().split(b"\n")[:-1]


# --- any fact ----------------------------------------------------------------------------------------------

TEXTS = st.text(
    alphabet="ab \n\t\"\\:#-'|>&*![]{},%@`\u00e9\u2028\x85\u00a0\x07\U0001f600", max_size=12
) | st.sampled_from(
    ["", "null", "true", "No", "1", "1e3", "-", "~", "0x1f", "2026-01-31", "<<", "=", "a: b", "\ufeff", "a\n  ", "\n"]
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**53, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@cache
def facts(kind: type[Fact]) -> st.SearchStrategy[Fact]:
    """Facts of a kind with any values."""
    return _plain_data(inspect.type_info(kind)).map(lambda plain: msgspec.convert(plain, kind))


ANY_FACT = st.sampled_from(KINDS).flatmap(facts)


def _plain_data(info: inspect.Type) -> st.SearchStrategy[Any]:
    """Plain data of a type, small ones often."""
    match info:
        case inspect.StructType():
            fields = {field.encode_name: (field.required, _plain_data(field.type)) for field in info.fields}
            given = {name: made for name, (required, made) in fields.items() if required}
            if info.tag_field:
                given[info.tag_field] = st.just(info.tag)
            may = {name: made for name, (required, made) in fields.items() if not required}
            return st.fixed_dictionaries(given, optional=may)
        case inspect.UnionType():
            return st.one_of([_plain_data(one) for one in info.types])
        case inspect.Metadata():
            return _plain_data(info.type)
        case inspect.VarTupleType():
            return st.lists(_plain_data(info.item_type), max_size=2)
        case inspect.DictType():
            return st.dictionaries(TEXTS, _plain_data(info.value_type), max_size=2)
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.IntType():
            return st.integers(0, 2**53 - 1)
        case inspect.BoolType():
            return st.booleans()
        case inspect.StrType():
            return TEXTS
        case inspect.AnyType():
            return JSON_VALUES
        case inspect.NoneType():
            return st.none()
    raise NotImplementedError(info)
