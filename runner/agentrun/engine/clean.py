"""Facts without values that must not be shown.

Whatever a model, a tool or a user said: a fact is cleaned before it is written and before it counts, so no journal, no
listener and no later request has it.
"""

from __future__ import annotations

from msgspec import convert, to_builtins

from agentrun.canon import compact
from agentrun.core.facts import Fact
from agentrun.redact import Redactor


def cleaned(redactor: Redactor, fact: Fact) -> Fact:
    """The fact with placeholders for what the redactor knows."""
    if redactor.found(compact(fact).decode()) is None:
        return fact
    clean: Fact = convert(redactor.data(to_builtins(fact)), type(fact))
    return clean
