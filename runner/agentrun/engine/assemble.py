"""The composition root: the one place that knows every part and puts a run together."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from agentrun.canon import compact, text_hash
from agentrun.core.facts import RULES, Record, RunStarted
from agentrun.core.messages import Text, User
from agentrun.core.outcome import Outcome
from agentrun.core.output import refuse_unusable
from agentrun.core.package import Package
from agentrun.core.state import State
from agentrun.engine.admission import Admitted, admit
from agentrun.engine.clock import ReplayClock
from agentrun.engine.crew import SingleCrew
from agentrun.engine.driver import commit, drive
from agentrun.engine.models import Models
from agentrun.engine.unbuilt import refuse_unbuilt
from agentrun.errors import CassetteError, InternalError

T = TypeVar("T")


class FinishedRun(Struct, frozen=True):
    """A run that is over, and what it left."""

    outcome: Outcome
    journal: tuple[Record, ...]
    unused: CassetteError | None
    """Interactions of the cassette that nobody asked for. After a failed run they are its consequence."""

    @property
    def exit_code(self) -> int:
        return self.outcome.exit_code or (self.unused.exit_code if self.unused else 0)


def replay_run(
    package: Package, *, fingerprint: str, message: str | None, params: Mapping[str, Any], cassette: Path
) -> FinishedRun:
    """Run a package against a recording: no network, no real time, the same bytes every time.

    Raises before the run exists: `host.missing`, `package.invalid`, `provider.not_found`, `input.rejected`,
    `cassette.miss` without a file, `cassette.damaged`. What goes wrong in the run is in its outcome.
    """
    from agentrun.cassette.file import load
    from agentrun.cassette.player import Player, unused_error
    from agentrun.journal.memory import MemoryJournal
    from agentrun.providers.registry import codec_for

    refuse_unbuilt(package)
    refuse_unusable(package.output)
    for route in package.model.routes:
        codec_for(route.provider).check(route)
    admitted = admit(package, message, params)
    tape = load(cassette)

    clock, journal = ReplayClock(tape.recorded_at), MemoryJournal()
    player = Player(tape, clock.move_to)
    commit(journal, clock, State(), _started(package, fingerprint, admitted, tape.hash))
    crew = SingleCrew(Models(player, codec_for).perform)
    outcome = _at_once(drive(package, journal, crew, clock))
    unused = player.unused()
    return FinishedRun(outcome, journal.records(), unused_error(unused, tape.interactions) if unused else None)


def _started(package: Package, fingerprint: str, admitted: Admitted, tape: str) -> RunStarted:
    run = text_hash(compact([fingerprint, admitted.params, admitted.message, tape]))
    return RunStarted(
        run="replay-" + run.removeprefix("sha256:")[:24],
        package=fingerprint,
        replayed=True,
        agent=package.name,
        rules=RULES,
        params=admitted.params,
        instructions=admitted.instructions,
        input=User((Text(admitted.message),)),
    )


def _at_once(run: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing, without an event loop.

    A replay has nothing to wait for: it starts 50 ms sooner without a loop, and works inside any other.
    """
    try:
        run.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    run.close()
    raise InternalError("internal", "a replay waited for the outside world")
