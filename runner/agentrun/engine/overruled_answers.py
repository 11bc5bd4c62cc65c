"""Recorded answers to approvals that no longer count.

A recording that keeps what fits (`--record new`) keeps recorded answers too. An answer that is given in advance, by the
case or on the command line, comes first: a recorded one that differs is left out, and the new one is recorded.
"""

from __future__ import annotations

from agentrun.cassette.player import Player
from agentrun.engine import tape_forms as form
from agentrun.engine.approvals import FirstOf, Given
from agentrun.engine.ports import Approver
from agentrun.errors import CassetteError

APPROVAL = "approval://"


def leave_out_overruled(kept: Player, approver: Approver) -> None:
    """Leave out the recorded answers that the approver answers differently in advance."""
    if not isinstance(approver, Given | FirstOf):
        return
    for number, interaction in enumerate(kept.cassette.interactions, 1):
        if not interaction.call.url.startswith(APPROVAL) or interaction.failure is not None or interaction.stopped:
            continue
        answer = approver.answer_about(interaction.call.url.removeprefix(APPROVAL))
        if answer is not None and answer != _recorded(kept, number):
            kept.leave_out(number)


def _recorded(kept: Player, number: int) -> str | None:
    try:
        return form.approval_answer(kept.cassette.interactions[number - 1].reply)[0]
    except CassetteError:  # changed by hand: it answers nothing
        return None
