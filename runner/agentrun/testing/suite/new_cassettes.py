"""What becomes of a new recording once its case was judged.

Rule 1  If the case fails an assertion, its cassette stays as it was, and the new recording is kept until somebody
        accepts it: `agentrun cassette accept`.
Rule 2  A journal that is not the accepted one is no failure here: recording again is how it changes. It is shown, and
        accepted with `--update`.
"""

from __future__ import annotations

from shlex import quote

from msgspec.structs import replace

from agentrun.cassette.file import load
from agentrun.errors import RequestError
from agentrun.spec.files import shown_path
from agentrun.store.staged import accept_staged, staged_path
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.played import NewCassette
from agentrun.testing.suite.prepared import Preparations
from agentrun.testing.suite.verdict import Complaint, Verdict

SNAPSHOTS = ("journal-snapshot", "not-journal-snapshot")


def settle_recording(found: Found, verdict: Verdict, new: NewCassette) -> Verdict:
    """Put a new recording in place, or keep it beside. Raises `storage.failed`."""
    wrong = [each for each in verdict.complaints if each.claim not in (*SNAPSHOTS, "xfail")]
    if wrong and verdict.is_bad:
        return _keep(found, verdict, wrong, new)
    accept_staged(new.project, new.path)
    notes = tuple(each for each in verdict.complaints if each.claim in SNAPSHOTS)
    if not notes or verdict.status != "failed":
        new.say(new.summary)
        return verdict
    new.say(f"{new.summary}; its journal is not the accepted one")
    return replace(verdict, status="passed", complaints=(), notes=notes, story="")


def accept_new_cassette(found: Found) -> str:
    """Put the staged cassette of a case in place and return the path of the cassette, as messages show it.

    Raises `input.rejected` if there is none, and what is wrong with the spec or the staged cassette.
    """
    prepared = Preparations().of(found)
    project, cassette = prepared.spec.project, prepared.cassette(found)
    staged = staged_path(project, cassette)
    if not staged.is_file():
        message = f"there is no new recording of {found.id}"
        hint = f"record one: agentrun test {found.id} --record new"
        raise RequestError("input.rejected", message, hint=hint, fields={"reason": "case"})
    load(staged, project.cassette_limit)
    accept_staged(project, cassette)
    return shown_path(cassette, project.root)


def _keep(found: Found, verdict: Verdict, wrong: list[Complaint], new: NewCassette) -> Verdict:
    kept = shown_path(staged_path(new.project, new.path), new.project.root)
    failed = ", ".join(dict.fromkeys(each.claim for each in wrong))
    new.say(f"kept in {kept}, because of {failed}; {shown_path(new.path, new.project.root)} is as it was")
    note = Complaint(
        claim="record",
        message=f"its cassette is as it was; the new recording is kept in {kept}",
        hint=f"to use it all the same: agentrun cassette accept {quote(found.id)}",
    )
    return replace(verdict, complaints=(*verdict.complaints, note))
