"""Recorded answers to approvals that no longer count.

A recording that keeps what fits (`--record new`) keeps recorded answers too. An answer that is given in advance, by the
case or on the command line, comes first: a recorded one that differs is left out, and the new one is recorded.
"""

from __future__ import annotations

from agentrun.cassette.player import Player
from agentrun.engine import tape_forms as form
from agentrun.engine.approvals import FirstOf, Given
from agentrun.engine.ports import Approver

APPROVAL = "approval://"


def leave_out_overruled(kept: Player, approver: Approver) -> None:
    """Leave out the recorded answers that the approver answers differently in advance."""
    if not isinstance(approver, Given | FirstOf):
        return
    for number, interaction in enumerate(kept.cassette.interactions, 1):
        if interaction.call.url.startswith(APPROVAL):
            answer = approver.answer_about(interaction.call.url.removeprefix(APPROVAL))
            if answer is not None and answer != form.recorded_answer(interaction):
                kept.skip(number)
