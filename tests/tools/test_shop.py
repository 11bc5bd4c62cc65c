"""The tools of the example shop, run through its support spec."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import agentrun
from agentrun.core.facts import CallRefused, ToolFinished
from agentrun.core.messages import text_of
from agentrun.core.outcome import Outcome
from agentrun.engine.memory import MemoryJournals
from agentrun.testing import calls, scripted, text
from agentrun.tools.python import PythonTools

from .python_desk import restored_process

SPECS = Path(__file__).parents[2] / "specs"
TODAY = date(2026, 1, 31)


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHOP_LEDGER", str(tmp_path / "ledger.jsonl"))
    with restored_process():
        yield tmp_path / "ledger.jsonl"


def support(*said: Any) -> tuple[Outcome, list[Any]]:
    """A run of the support agent with its real tools, and the facts of its journal."""
    journals = MemoryJournals()
    package = agentrun.compile(SPECS / "support.yaml")
    tools = {"python": PythonTools([SPECS])}
    outcome = agentrun.run(package, model=scripted(*said), tools=tools, journals=journals)
    return outcome, [record.fact for record in journals.records(outcome.run)]


def result(tool: str, **arguments: Any) -> dict[str, Any]:
    _, facts = support(calls(tool, **arguments), text("Done."))
    (finished,) = (fact for fact in facts if isinstance(fact, ToolFinished))
    assert finished.fault is None
    return dict(json.loads(text_of(finished.parts)))


def failure(tool: str, **arguments: Any) -> str:
    _, facts = support(calls(tool, **arguments), text("Sorry."))
    (finished,) = (fact for fact in facts if isinstance(fact, ToolFinished))
    return text_of(finished.parts)


def test_late_order_has_its_parcel() -> None:
    order = result("lookup_order", id="1042")
    assert (order["delivered"], order["total"], order["customer"]["email"]) == (None, 39.9, "ada@example.org")
    assert (TODAY - date.fromisoformat(order["due"])).days == 21
    assert order["parcel"] == "PX-1042-1"
    assert result("track_parcel", number=order["parcel"])["event"] == "sent to the wrong region"


def test_damaged_order_and_order_in_transit() -> None:
    damaged, coming = result("lookup_order", id="2077"), result("lookup_order", id="3003")
    assert (damaged["total"], damaged["state"]) == (120.0, "delivered damaged")
    assert (coming["state"], date.fromisoformat(coming["due"]) > TODAY) == ("in transit", True)


def test_every_order_has_a_known_parcel_and_a_correct_total() -> None:
    orders = json.loads((SPECS / "shop/orders.json").read_text(encoding="utf-8"))
    parcels = json.loads((SPECS / "shop/parcels.json").read_text(encoding="utf-8"))
    assert {order["parcel"] for order in orders.values()} - {None} == parcels.keys()
    for order in orders.values():
        assert order["total"] == sum(item["count"] * item["price"] for item in order["items"])


def test_unknown_order_or_parcel_is_a_failure() -> None:
    assert failure("lookup_order", id="9999").startswith("tool.execution: LookupError: there is no order 9999: ask")
    assert failure("track_parcel", number="PX").startswith("tool.execution: LookupError: there is no parcel PX: the")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("lookup_order", {"id": "12"}), ("track_parcel", {"number": "x" * 41})],
)
def test_invalid_arguments_are_refused(tool: str, arguments: dict[str, Any]) -> None:
    _, facts = support(calls(tool, **arguments), text("Sorry."))
    (refused,) = (fact for fact in facts if isinstance(fact, CallRefused))
    assert refused.code == "tool.invalid_arguments"


def test_conversation_with_a_refund_is_written_to_the_ledger(ledger: Path) -> None:
    outcome, _ = support(
        calls("lookup_order", id="1042"),
        calls("track_parcel", number="PX-1042-1"),
        calls("refund", order_id="1042", amount=39.9, reason="late"),
        text("It went astray. You have your money back."),
    )
    assert (outcome.status, outcome.tool_calls) == ("completed", 3)
    assert json.loads(ledger.read_text()) == {"order_id": "1042", "amount": 39.9, "reason": "late"}


def test_big_refund_waits_for_approval(ledger: Path) -> None:
    outcome, _ = support(calls("refund", order_id="2077", amount=120.0), text("Done."))
    assert outcome.status == "suspended"
    assert not ledger.exists()
