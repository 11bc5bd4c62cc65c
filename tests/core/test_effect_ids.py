"""Effect ids: text and parsed form convert both ways, and no other module builds them by hand."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.effect_ids import CallId, DeliveryId, EffectId, HookId, RequestId, parse_effect_id

from ..architecture.sources import product
from .untraced import untraced

NUMBERS = st.integers(0, 999_999_999)
CALLS = st.builds(CallId, NUMBERS, NUMBERS)
SUBJECTS = st.sampled_from(["input", "request", "reply", "output", "stop"]) | CALLS.map(str)
IDS = (
    st.builds(RequestId, st.sampled_from(["answer", "compact"]), NUMBERS, NUMBERS)
    | CALLS
    | st.builds(HookId, st.text(min_size=1), SUBJECTS, NUMBERS)
    | st.builds(DeliveryId, st.text())
)


@given(IDS)
def test_parsing_an_effect_id_gives_the_same_id(id: EffectId) -> None:
    assert parse_effect_id(str(id)) == id


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("m3.2", RequestId("answer", 3, 2)),
        ("k3.1", RequestId("compact", 3, 1)),
        ("c3.0", CallId(3, 0)),
        ("h.limits.c3.0.3", HookId("limits", "c3.0", 3)),
        ("h.a.input.c1.0.stop.7", HookId("a.input.c1.0", "stop", 7)),
        ("deliver:mail", DeliveryId("mail")),
        ("deliver:c1.0", DeliveryId("c1.0")),
    ],
)
def test_text_of_each_kind_of_effect_id(text: str, id: EffectId) -> None:
    assert str(id) == text
    assert parse_effect_id(text) == id


@pytest.mark.parametrize(
    "text", ["", "input", "c1", "c1.0.1", "x1.0", "r1.c1.0", "h.limits.mail.3", "h.c1.0.3", "c1.x"]
)
def test_text_that_is_no_effect_id_is_none(text: str) -> None:
    assert parse_effect_id(text) is None


def test_no_other_module_builds_effect_ids() -> None:
    starts = ("deliver:", "h.{", "c{", "m{", "k{")
    found = []
    with untraced():
        for module in product().values():
            if module.name == "agentrun.core.effect_ids":
                continue
            for node in module.nodes:
                if isinstance(node, ast.JoinedStr) and ast.unparse(node)[2:].startswith(starts):
                    found.append(module.at(node.lineno, ast.unparse(node)))
                if isinstance(node, ast.Constant) and node.value == "deliver:":
                    found.append(module.at(node.lineno, "deliver:"))
    assert found == []
