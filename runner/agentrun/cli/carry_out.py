"""Carries out a plan: replays, runs live, or records, and tells how it ends."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.match import Tier
from agentrun.cli.journal_file import clear_journal, write_journal
from agentrun.cli.plan import Plan
from agentrun.cli.teller import Teller
from agentrun.compiler.fingerprint import PackageFile
from agentrun.compiler.resolve import Spec
from agentrun.core.outcome import Outcome
from agentrun.engine.approvals import TO_ANSWER, Nobody, unasked
from agentrun.engine.assemble import NOTHING, FinishedRun, replay_run
from agentrun.engine.ports import Approver
from agentrun.engine.request import Attachment
from agentrun.errors import HostError
from agentrun.spec.files import shown_path

if TYPE_CHECKING:
    from agentrun.cassette.player import Player
    from agentrun.cli.interrupt import Interrupts
    from agentrun.engine.real_time import Job
    from agentrun.testing.suite.overlay.laid_over import LaidOver


class Errand(Struct, frozen=True, kw_only=True):
    """A plan, and all that the command line says about carrying it out."""

    plan: Plan
    spec: Spec
    file: PackageFile
    approver: Approver | None
    attachments: tuple[Attachment, ...]
    journal: Path | None
    require: Tier
    record: str | None
    settings: tuple[str, ...]
    approve: str | None
    """What `--approve` says."""
    attached: tuple[Path, ...]
    """What `--attach` says."""
    session: str | None

    @property
    def writes_journal_as_it_goes(self) -> bool:
        """A pipe gets the whole at the end. Of a session's run the journal is in the session, and is copied."""
        path = self.journal
        is_file = path is not None and str(path) != "-" and (path.is_file() or not path.exists())
        return is_file and self.plan.mode != "replay" and self.session is None

    def laid_over(self, player: Player | None = None) -> LaidOver | None:
        """What the case lays over its runs. `player`: plays all of the recording. None: nothing."""
        case = self.plan.case
        if case is not None and self.plan.has_real_tools:
            case = case.without_approvals
        if case is None or case.is_plain:
            return None
        from agentrun.testing.suite.overlay.laid_over import LaidOver

        return LaidOver(case, player)

    def player(self) -> Player:
        """Plays the recording of the case."""
        from agentrun.cassette.file import load
        from agentrun.cassette.loose import FaultedPlayer
        from agentrun.cassette.player import Player
        from agentrun.cassette.redaction import Redaction
        from agentrun.engine.here import here_of

        assert self.plan.cassette is not None
        rules = self.file.agent.replay
        has_faults = self.plan.case is not None and bool(self.plan.case.faults) and self.require == "normalised"
        return (FaultedPlayer if has_faults else Player)(
            load(self.plan.cassette, self.spec.project.cassette_limit),
            volatile=rules.volatile,
            redaction=Redaction(rules.redact),
            require=self.require,
            here=lambda: here_of(
                self.spec,
                self.file,
                message=self.plan.message,
                params=self.plan.params,
                accept=self._command(),
                whole=self.plan.mode in ("live-tools", "live-model"),
            ),
        )

    def _command(self) -> str:
        """The command that this is."""
        words = ["agentrun", shown_path(self.spec.path, self.spec.project.root)]
        if self.plan.case is not None:
            words += ["--case", self.plan.case.name]
        for setting in self.settings:
            words += ["--set", setting]
        for path in self.attached:
            words += ["--attach", str(path)]
        if self.approve is not None:
            words += ["--approve", self.approve]
        return " ".join(map(quote, words))


def carry_out(errand: Errand, teller: Teller) -> int:
    """Do it. The exit code."""
    try:
        done = _replay(errand, teller) if errand.plan.mode == "replay" else _in_real_time(errand, teller)
    except HostError as error:
        raise _with_way_out(error, errand.plan) from None
    finally:
        teller.close()
    if errand.journal is not None and not errand.writes_journal_as_it_goes:
        write_journal(errand.journal, done)
    teller.end(_hinted(done, errand.plan))
    if done.complaint is not None:
        raise done.complaint
    return done.exit_code


def _replay(errand: Errand, teller: Teller) -> FinishedRun:
    from agentrun.cassette.loose import FaultedPlayer

    player = errand.player()
    laid = errand.laid_over(player)
    done = replay_run(
        errand.file.agent,
        fingerprint=errand.file.fingerprint,
        message=errand.plan.message,
        params=errand.plan.params,
        cassette=player,
        attachments=errand.attachments,
        approver=errand.approver,
        listen=teller.listen,
        overlay=NOTHING if laid is None else laid.overlay,
    )
    _say_unmet(laid, teller)
    if not (isinstance(player, FaultedPlayer) and player.has_strayed):
        return done
    teller.say("after a fault the recorded replies were played to other requests than the recorded ones", "warn")
    return replace(done, unused=None)


def _say_unmet(laid: LaidOver | None, teller: Teller) -> None:
    for place in () if laid is None else laid.unmet():
        teller.say(f"the fault at {place} never happened", "warn")


def _in_real_time(errand: Errand, teller: Teller) -> FinishedRun:
    from agentrun.cli.own_output import keep_output
    from agentrun.cli.show import clean

    end = keep_output(lambda program, text: teller.printed(program, clean(text)))
    try:
        return _live(errand, teller)
    finally:
        end()


def _live(errand: Errand, teller: Teller) -> FinishedRun:
    from agentrun.cli.interrupt import Interrupts
    from agentrun.engine.real_time import Job

    interrupts = Interrupts(teller)
    journal = None
    if errand.journal is not None and errand.writes_journal_as_it_goes:
        journal = errand.journal.resolve()
        clear_journal(journal)
    project, laid = errand.spec.project, errand.laid_over()
    job = Job(
        file=errand.file,
        project=project,
        message=errand.plan.message,
        params=errand.plan.params,
        attachments=errand.attachments,
        approver=errand.approver or Nobody(),
        journal=journal,
        printed=teller.printed,
        write=teller.write,
        hold=interrupts.hold,
        watch=teller.watch,
        wrappers=() if laid is None else laid.overlay.wrappers,
    )
    done = _carried_out(errand, job, interrupts, teller)
    _say_unmet(laid, teller)
    return done


def _carried_out(errand: Errand, job: Job, interrupts: Interrupts, teller: Teller) -> FinishedRun:
    from agentrun.engine.real_time import live_run

    if errand.plan.mode == "record":
        from agentrun.cli.record import record

        return record(errand, job, interrupts, teller)
    if errand.plan.mode != "live":
        done = _mixed(errand, job, interrupts)
    elif errand.session is None:
        done = interrupts.run(live_run(job))
    else:
        from agentrun.store.sessions import open_session

        with open_session(errand.spec.project, errand.session) as session:
            done = interrupts.run(live_run(replace(job, session=session)))
    if errand.plan.mode != "live-model":
        _say_unasked(done, teller)
    return done


def _say_unasked(done: FinishedRun, teller: Teller) -> None:
    """A run that went on without an answer does not say how to give one; one that ended over it does."""
    if not done.ended.exit_code and (names := unasked(done.journal, *done.children.values())):
        teller.say(f"there was nobody to ask about {', '.join(names)}: {TO_ANSWER}", "warn")


def _mixed(errand: Errand, job: Job, interrupts: Interrupts) -> FinishedRun:
    """One axis from the tape, the other for real."""
    from agentrun.engine.real_time import Tapes, live_run
    from agentrun.engine.taped import Playing

    player = errand.player()
    playing = Playing(player, None)
    tapes = Tapes(models=playing) if errand.plan.mode == "live-tools" else Tapes(others=playing)
    return replace(interrupts.run(live_run(job, tapes)), tier=player.tier)


def _with_way_out(error: HostError, plan: Plan) -> HostError:
    """The error of a run that could not start, with what can be done without what it lacks."""
    if plan.mode == "record" and "names" in error.fields:
        return error  # what tools lack is not what a script gives
    return HostError(error.code, error.message, hint=_way_out(error.hint, plan), fields=error.fields)


def _hinted(done: FinishedRun, plan: Plan) -> FinishedRun:
    """The same for a run that found nobody at the other end."""
    outcome = done.ended
    if not isinstance(outcome, Outcome) or outcome.fault is None:
        return done
    fault = outcome.fault
    if plan.mode == "replay":
        if not fault.code.startswith("provider.") or (plan.case is not None and plan.case.faults):
            return done
        hint = "this failure is on the tape; remove the cassette and record again if it is not what you want"
        return replace(done, ended=replace(outcome, fault=replace(fault, hint=hint)))
    if fault.code == "approval.unavailable":
        hint = TO_ANSWER
        return replace(done, ended=replace(outcome, fault=replace(fault, hint=hint)))
    if fault.code != "provider.transient" or fault.fields.get("status") is not None:
        return done
    hint = fault.hint or "is the server running, and its address right?"
    return replace(done, ended=replace(outcome, fault=replace(fault, hint=_way_out(hint, plan))))


def _way_out(hint: str | None, plan: Plan) -> str | None:
    if plan.mode == "record":
        return f"{hint}; or let a script play the model: agentrun provider --help" if hint else None
    if not plan.recorded:
        return hint
    offline = f"or replay a recorded case: --case {' | '.join(plan.recorded)}"
    return f"{hint}; {offline}" if hint else offline
