"""How a run ended, read from its state, which is read from its journal: there is no other source."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from agentrun.core.facts import Fault, Label, Status
from agentrun.core.messages import Usage
from agentrun.core.state import State
from agentrun.errors import Retry, code_of


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a finished run."""

    run: str
    agent: str
    status: Status
    replayed: bool
    """Whether the world was a cassette: nothing was asked of any model."""
    answer: str | None
    """The final text. Null: the run failed."""
    output: Any | UnsetType = UNSET
    """The parsed answer, for an agent with an output contract. Unset: there is none."""
    label: Label | None
    """Why a completed run's answer may not be all that was asked for."""
    turns: int
    usage: Usage
    """Summed over all calls. Null: a call did not report it."""
    fault: Fault | None
    """Why the run failed."""

    @property
    def code(self) -> str | None:
        return self.fault.code if self.fault else None

    @property
    def fields(self) -> dict[str, Any]:
        """The evidence of a failure."""
        return self.fault.fields if self.fault else {}

    @property
    def retry(self) -> Retry | None:
        return code_of(self.fault.code).retry if self.fault else None

    @property
    def exit_code(self) -> int:
        return code_of(self.fault.code).exit if self.fault else 0


def outcome_of(state: State) -> Outcome:
    """The outcome of a stopped run."""
    assert state.started is not None
    assert state.stopped is not None
    stopped = state.stopped
    completed = stopped.status == "completed"
    return Outcome(
        run=state.started.run,
        agent=state.started.agent,
        status=stopped.status,
        replayed=state.started.replayed,
        answer=state.reply.message.text if completed and state.reply else None,
        output=stopped.output,
        label=stopped.label,
        turns=state.turns,
        usage=state.usage,
        fault=stopped.fault,
    )
