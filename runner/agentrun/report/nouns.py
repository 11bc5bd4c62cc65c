"""Facts as things that can be new or gone: `the ruling on refund (ask, by big-refunds)`.

A fact that nobody has words for is told by its name: a journal may come from a later release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentrun.core.effect_ids import CallId, parse_effect_id
from agentrun.report.change import Kind
from agentrun.report.line import gist
from agentrun.report.steps import Fact, look, said, text_of
from agentrun.spec.text import short

NAME = 60


class Noun(NamedTuple):
    kind: Kind
    words: str
    """What it is, as every fact of its kind is called."""
    detail: str = ""
    """What this one says."""

    def whole(self) -> str:
        return f"{self.words} ({self.detail})" if self.detail else self.words


def noun_of(fact: Fact, name: str) -> Noun:
    """`name`: what the fact is about, as people call it."""
    make = _NOUNS.get(fact.kind)
    return Noun("other", f"the fact {short(fact.kind, NAME)}") if make is None else make(fact, name)


def key_of(fact: Fact) -> tuple[str, ...]:
    """Which facts of two journals are the same one: those that are about the same thing."""
    about = _ABOUT.get(fact.kind, ())
    subject = str(fact.get("subject"))
    # The number of a call moves when one before it is new.
    who = "" if isinstance(parse_effect_id(subject), CallId) else subject
    return (fact.kind, who, *(str(fact.get(name)) for name in about))


def by_rules(rules: Any, reason: Any = None) -> str:
    """`by big-refunds: a person signs off`."""
    names = [short(str(rule), NAME) for rule in rules] if isinstance(rules, list) else []
    why = f": {gist(reason)}" if isinstance(reason, str) else ""
    return (f"by {', '.join(names)}" if names else "by default") + why


def fault_words(fault: Any) -> str:
    """`provider.overloaded: the provider is busy`."""
    if not isinstance(fault, dict):
        return "nothing"
    message = look(fault, "message")
    code = short(str(look(fault, "code")), NAME)
    return f"{code}: {gist(message)}" if isinstance(message, str) and message else code


def answer_words(answer: Any) -> str:
    """What a hook said: `deny: too large`."""
    more = look(answer, "reason") or look(answer, "text") or look(answer, "fault", "message") or look(answer, "value")
    said_ = short(str(look(answer, "answer")), NAME)
    return said_ if more is None else f"{said_}: {gist(more if isinstance(more, str) else str(more))}"


def _messages(messages: Any) -> str:
    return gist(" ".join(said(each) for each in messages)) if isinstance(messages, list) else ""


def _named(fact: Fact, key: str) -> str:
    return short(str(fact.get(key)), NAME)


_ABOUT: dict[str, tuple[str, ...]] = {
    "ruled": ("stage",),
    "hook_asked": ("hook", "point"),
    "hook_answered": ("hook", "point"),
    "model_asked": ("purpose",),
    "model_told": ("why",),
    "delivery_started": ("sink",),
    "delivery_finished": ("sink",),
    "delivery_skipped": ("sink",),
}
_NOUNS: Mapping[str, Callable[[Fact, str], Noun]] = {
    "message_queued": lambda f, _: Noun("input", "the message that was sent meanwhile", gist(said(f.get("message")))),
    "cancel_requested": lambda f, _: Noun("outcome", "the wish to cancel the run", f"by {_named(f, 'by')}"),
    "work_lost": lambda f, _: Noun("fault", "the work that was lost", _named(f, "effect")),
    "model_asked": lambda f, _: Noun("fault", "the request to the model", _named(f, "route")),
    "model_replied": lambda f, _: Noun("reply", "the reply", gist(said(f.get("reply", "message")))),
    "model_failed": lambda f, _: Noun("fault", "the failed request", fault_words(f.get("fault"))),
    "retry_planned": lambda _, __: Noun("fault", "the retry"),
    "route_switched": lambda f, _: Noun(
        "route",
        f"the switch from {_named(f, 'source')} to {_named(f, 'target')}",
        fault_words(f.get("fault")),
    ),
    "reply_discarded": lambda f, _: Noun(
        "fault", "the reply that was cut off and asked for again", f"cap {_named(f, 'cap')}"
    ),
    "model_told": lambda f, _: Noun(
        "told", f"what the model is told ({_named(f, 'why')})", _messages(f.get("messages"))
    ),
    "context_compacted": lambda f, _: Noun("compaction", "the compaction", f"{_named(f, 'replaced')} messages"),
    "compaction_failed": lambda f, _: Noun("compaction", "the failed compaction", _named(f, "reason")),
    "output_refused": lambda f, _: Noun("repair", "the repair of the answer", _errors(f.get("errors"))),
    "answer_reached": lambda f, _: Noun("outcome", "the answer", _named(f, "label") if f.get("label") else ""),
    "delivery_started": lambda f, _: Noun("delivery", f"the delivery to {_named(f, 'sink')}"),
    "delivery_finished": lambda f, _: Noun(
        "delivery", f"the delivery to {_named(f, 'sink')}", fault_words(f.get("fault")) if f.get("fault") else ""
    ),
    "delivery_skipped": lambda f, _: Noun(
        "delivery", f"the skipped delivery to {_named(f, 'sink')}", fault_words(f.get("fault"))
    ),
    "run_ending": lambda _, __: Noun("outcome", "the way to the end"),
    "run_stopped": lambda f, _: Noun("outcome", "the end", outcome_words(f)),
    "hook_asked": lambda f, name: Noun("hook", f"the question to the hook {_named(f, 'hook')} about {name}"),
    "hook_answered": lambda f, name: Noun(
        "hook",
        f"the answer of the hook {_named(f, 'hook')} ({_named(f, 'point')}) about {name}",
        answer_words(f.get("answer")),
    ),
    "ruled": lambda f, name: Noun(
        "ruling", f"the ruling on {name}", f"{_named(f, 'ruling')}, {by_rules(f.get('rules'), f.get('reason'))}"
    ),
    "approval_asked": lambda f, name: Noun(
        "approval", f"the question about {name}", by_rules(f.get("rules"), f.get("reason"))
    ),
    "approval_answered": lambda f, name: Noun(
        "approval", f"the approval of {name}", f"{_named(f, 'answer')} by {_named(f, 'by')}"
    ),
    "call_refused": lambda f, name: Noun("result", f"the refusal of {name}", _named(f, "code")),
    "call_cancelled": lambda _, name: Noun("result", f"the cancellation of {name}"),
    "tool_started": lambda _, name: Noun("result", f"the start of {name}"),
    "child_started": lambda _, name: Noun("result", f"the start of the sub-agent {name}"),
    "tool_finished": lambda f, name: Noun("result", f"the result of {name}", gist(text_of(f.get("parts")))),
    "child_suspended": lambda _, name: Noun("result", f"that the sub-agent {name} waits for somebody"),
    "call_settled": lambda f, name: Noun(
        "result", f"the decision about {name}", f"{_named(f, 'how')} by {_named(f, 'by')}"
    ),
    "results_given": lambda _, __: Noun("result", "that the model reads the results"),
}


def _errors(errors: Any) -> str:
    return gist(str(errors[0])) if isinstance(errors, list) and errors else ""


def outcome_words(stopped: Fact | None) -> str:
    """`completed`, `completed (truncated)`, or the code."""
    if stopped is None:
        return "not over"
    if fault := stopped.get("fault"):
        return short(str(look(fault, "code")), NAME)
    label = stopped.get("label")
    return _named(stopped, "status") + (f" ({short(str(label), NAME)})" if label else "")
