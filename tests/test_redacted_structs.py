"""Facts are redacted wherever a value is in them, although one search of the whole fact comes first."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from agentrun.redactor import Redactor
from agentrun.secret import Secret

VALUES = st.text(st.sampled_from('abAB01"\\/\n\t\x01\x7fü漢🔑\u2028+ '), min_size=8, max_size=14).filter(
    lambda value: value.strip()
)
WRAPPERS = st.sampled_from(["{}", "a {} b", "\\{}", '"{}', "\n{}"])


class SomeFact(Struct, frozen=True):
    text: str
    data: Any = None


@given(VALUES, WRAPPERS, st.sampled_from(["text", "data", "key", "json", "json twice", "upper"]))
def test_value_is_in_no_text_of_a_fact(value: str, wrapper: str, place: str) -> None:
    text = wrapper.replace("{}", value)
    facts = {
        "text": SomeFact(text),
        "data": SomeFact("", [text]),
        "key": SomeFact("", {text: 1}),
        "json": SomeFact(json.dumps({"a": text})),
        "json twice": SomeFact(json.dumps(json.dumps([text], ensure_ascii=False))),
        "upper": SomeFact(text.upper()),
    }
    redactor = Redactor([("KEY", Secret(value))])
    clean = redactor.redact_struct(facts[place])
    assert "[redacted:KEY]" in repr(clean)
    assert value not in f"{clean.text} {clean.data}"


def test_fact_without_a_value_is_the_same_object() -> None:
    fact = SomeFact("a \\ b", {"c": ["d", 1, None]})
    assert Redactor([("KEY", Secret("value-of-it"))]).redact_struct(fact) is fact
