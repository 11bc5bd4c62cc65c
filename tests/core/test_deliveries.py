"""Delivery of the answer to sinks: order, failures, rulings and masks."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.effects import Deliver
from agentrun.core.facts import CancelRequested, DeliverySkipped, DeliveryStarted, HookAsked, Ruled
from agentrun.core.fault import Fault
from agentrun.core.state import pending_effects

from ..packages import package, typed
from .script import RUN_STARTED, SINK, Run, hook, rule, text_reply
from .shape_parts import GOOD, policy


def sinks(**deliveries: str) -> dict[str, Any]:
    return {name: SINK | {"delivery": delivery} for name, delivery in deliveries.items()}


def delivered(run: Run) -> list[tuple[str, str]]:
    return [(effect.name, effect.text) for effect in run.effects if isinstance(effect, Deliver)]


DELIVERY_FAULT = Fault("delivery.failed", "refused", {"sink": "a"})


def test_enabled_sinks_are_served_in_order_of_name() -> None:
    run = Run(package(sinks=sinks(b="required", a="optional", c="disabled")), text_reply("Yes."))
    assert run.finish().answer == "Yes."
    assert delivered(run) == [("a", "Yes."), ("b", "Yes.")]
    kinds = ["answer_reached", "delivery_started", "delivery_finished", "delivery_started", "delivery_finished"]
    assert run.kinds()[-6:] == [*kinds, "run_stopped"]


def test_delivery_effect_has_sink_text_output_and_key() -> None:
    run = Run(typed(sinks=sinks(a="required", b="required")), text_reply(GOOD))
    run.finish()
    one, two = [effect for effect in run.effects if isinstance(effect, Deliver)]
    assert (one.id, one.sink, one.text) == ("deliver:a", run.agent.sinks["a"], GOOD)
    assert one.output == {"queue": "hardware", "urgent": True}
    assert one.key != two.key
    again = Run(typed(sinks=sinks(a="required")), text_reply(GOOD.replace("true", "false")))
    again.finish()
    assert [effect.key for effect in again.effects if isinstance(effect, Deliver)] == [one.key], "by ids, not by text"
    other = Run(package(sinks=sinks(a="required")), text_reply("Yes."), started=replace(RUN_STARTED, run="run-2"))
    other.finish()
    (effect,) = [effect for effect in other.effects if isinstance(effect, Deliver)]
    assert (effect.key != one.key, effect.output) == (True, UNSET)


def test_failed_required_sink_fails_the_run() -> None:
    run = Run(package(sinks=sinks(a="required", b="required")), text_reply("Yes."), sinks={"a": DELIVERY_FAULT})
    outcome = run.finish()
    assert (outcome.status, outcome.fault, outcome.exit_code, outcome.retry) == (
        "failed",
        DELIVERY_FAULT,
        6,
        "retryable",
    )
    assert (outcome.answer, delivered(run)) == (None, [("a", "Yes.")])


def test_failed_optional_sink_does_not_fail_the_run() -> None:
    run = Run(package(sinks=sinks(a="optional", b="required")), text_reply("Yes."), sinks={"a": DELIVERY_FAULT})
    assert run.finish().answer == "Yes."
    assert [name for name, _ in delivered(run)] == ["a", "b"]
    assert run.state.ending.delivered == {"a": DELIVERY_FAULT, "b": None}


@pytest.mark.parametrize("ruling", ["deny", "ask"])
@pytest.mark.parametrize("delivery", ["required", "optional", "disabled"])
def test_denied_delivery_fails_the_run_only_for_a_required_sink(delivery: str, ruling: str) -> None:
    agent = package(sinks=sinks(a=delivery, b="required"), policy=policy(rule(ruling, "a", on="delivery")))
    run = Run(agent, text_reply("Yes."), people={"a": "denied"})
    outcome = run.finish()
    code = "policy.denied" if ruling == "deny" else "approval.denied"
    if delivery == "required":
        assert (outcome.code, delivered(run)) == (code, [])
    else:
        assert (outcome.answer, delivered(run)) == ("Yes.", [("b", "Yes.")])
        assert [(fact.sink, fact.fault.code) for fact in run.of(DeliverySkipped)] == (
            [("a", code)] if delivery == "optional" else []
        )


def test_interrupt_on_an_optional_sink_ends_the_run() -> None:
    agent = package(sinks=sinks(a="optional"), policy=policy(rule("interrupt", "a", on="delivery")))
    assert Run(agent, text_reply("Yes.")).finish().code == "policy.interrupted"


def test_each_sink_has_its_own_mask() -> None:
    rules = policy(rule("modify", "a", on="delivery", mask=["Y"]), rule("modify", "c", on="delivery", mask=["s"]))
    run = Run(package(sinks=sinks(a="required", b="required", c="required"), policy=rules), text_reply("Yes."))
    assert run.finish().answer == "Yes."
    assert delivered(run) == [("a", "***es."), ("b", "Yes."), ("c", "Ye***.")]


def test_masked_delivery_has_no_output_object() -> None:
    rules = policy(rule("modify", "a", on="delivery", mask=["hardware"]))
    run = Run(typed(sinks=sinks(a="required", b="required"), policy=rules), text_reply(GOOD))
    assert run.finish().output == {"queue": "hardware", "urgent": True}
    outputs = [effect.output for effect in run.effects if isinstance(effect, Deliver)]
    assert outputs == [UNSET, {"queue": "hardware", "urgent": True}]


def test_failed_run_delivers_nothing() -> None:
    run = Run(package(sinks=sinks(a="required")), Fault("provider.fatal", "no"))
    run.finish()
    assert delivered(run) == []


def test_output_hooks_and_rules_run_once_for_all_sinks() -> None:
    """Hooks and rules on the answer are not asked again between sinks."""
    agent = package(
        sinks=sinks(a="required", b="required"), hooks=[hook("on_output")], policy=policy(rule("allow", on="output"))
    )
    run = Run(agent, text_reply("Yes."))
    run.finish()
    assert (len(run.of(HookAsked)), len(run.of(Ruled))) == (1, 1)


def test_cancel_during_a_delivery_skips_the_next_sink() -> None:
    run = Run(package(sinks=sinks(a="required", b="required")), text_reply("Yes."))
    run.until(DeliveryStarted)
    run.add(CancelRequested("me"))
    assert (run.finish().code, len(delivered(run)), pending_effects(run.state)) == ("cancelled", 1, ())
