"""The canonical journal of every shipped case: what a change of behaviour looks like in review."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from agentrun.compiler.cases import cases_path, read_cases
from agentrun.compiler.compile import compiled_or_raise
from agentrun.engine.assemble import replay_run
from agentrun.spec.v1.cases import Case

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "specs"
CASES = [
    (spec, case)
    for spec in sorted(SPECS.glob("*.yaml"))
    if not spec.name.endswith(".cases.yaml") and cases_path(spec).exists()
    for case in read_cases(cases_path(spec))[1]
]

FAILING = {("triage", "denial"): 4, ("ops", "other"): 4}
"""Cases that show how a run fails, with its exit code."""


class JournalFile(SingleFileSnapshotExtension):
    """One readable file for each case."""

    _write_mode = WriteMode.TEXT
    file_extension = "journal"


@pytest.mark.parametrize(("spec", "case"), CASES, ids=[f"{spec.stem}-{case.name}" for spec, case in CASES])
def test_journal(spec: Path, case: Case, snapshot: SnapshotAssertion) -> None:
    _, file = compiled_or_raise(spec, None if case.profile is UNSET else case.profile)
    run = replay_run(
        file.agent,
        fingerprint=file.fingerprint,
        message=None if case.input is UNSET else case.input,
        params=case.params,
        cassette=ROOT / "cassettes" / file.agent.name / f"{case.name}.yaml",
    )
    assert run.exit_code == FAILING.get((spec.stem, case.name), 0)
    assert (run.tier, run.unused) == ("exact", None)
    assert run.canonical() == snapshot.use_extension(JournalFile)


def test_every_cassette_has_its_case() -> None:
    found = {(path.parent.name, path.stem) for path in (ROOT / "cassettes").glob("*/*.yaml")}
    assert found == {(spec.stem, case.name) for spec, case in CASES}
    assert set(FAILING) <= found


def test_fingerprints(snapshot: SnapshotAssertion) -> None:
    """The same on every machine and with every Python: what is written here was made on another one."""
    found = {
        spec.stem: compiled_or_raise(spec)[1].fingerprint
        for spec in sorted(SPECS.glob("*.yaml"))
        if not spec.name.endswith(".cases.yaml")
    }
    assert found == snapshot
