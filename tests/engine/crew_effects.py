"""Small effects, facts and questions for tests of crews."""

from msgspec import UNSET

from agentrun.core.effects import Deliver, Effect
from agentrun.core.facts import DeliveryFinished, Fact
from agentrun.core.outcome import Question
from agentrun.core.package import StdoutSink

SINK = StdoutSink(delivery="required", timeout=1000)


def effect(name: str) -> Deliver:
    return Deliver(name, name, SINK, "text", UNSET, "key")


def fact(of: Effect | str) -> Fact:
    """That an effect is done."""
    return DeliveryFinished(of if isinstance(of, str) else of.id)


def question(subject: str, text: str = "?") -> Question:
    return Question(subject, subject + text, "tool", {}, (), None)
