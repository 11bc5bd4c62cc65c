"""Read the test cases of an agent from `<spec>.cases.yaml`."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agentrun.compiler.file_references import inline_assertion_schemas
from agentrun.compiler.lint_policy import duplicate_names
from agentrun.core.package import matches_pattern
from agentrun.errors import SpecError
from agentrun.spec.document_loader import load_document
from agentrun.spec.problems import DocumentError, Source
from agentrun.spec.project import project_root
from agentrun.spec.source_files import read_source
from agentrun.spec.tree import DocumentPath, MappingNode, plain_data
from agentrun.spec.v1.assertions import Assertion, JournalSnapshot, OutcomeIs, SnapshotUsage, split_negations
from agentrun.spec.v1.cases import Case, CaseDefaults, CasesFile, CaseTurn, ClockSetting

CASES_FILE_SUFFIX = ".cases.yaml"


def cases_path(spec: Path) -> Path:
    return spec.with_name(spec.stem + CASES_FILE_SUFFIX)


def spec_path(cases: Path) -> Path:
    return cases.with_name(cases.name.removesuffix(CASES_FILE_SUFFIX) + ".yaml")


def cases_for_spec(spec: Path) -> list[Case]:
    """Read the cases next to a spec; without a cases file there are none. Raises SpecError."""
    path = cases_path(spec)
    if not path.exists():
        return []
    try:
        root, file = read_cases_file(path)
    except DocumentError as error:
        raise SpecError(error.problems) from None
    if problems := list(duplicate_names(DocumentPath(root, ("cases",)), "name", [case.name for case in file.cases])):
        raise SpecError(problems)
    return complete_cases(file)


def read_cases_file(path: Path) -> tuple[MappingNode, CasesFile]:
    """Read a cases file without applying its defaults to the cases. Raises DocumentError."""
    return parse_cases(read_source(path, root=project_root(path)), path)


def parse_cases(source: Source, path: Path) -> tuple[MappingNode, CasesFile]:
    """Parse the text of a cases file, which need not exist yet. Raises DocumentError."""
    document = load_document(source, "cases")
    if document.root is None or document.problems:
        raise DocumentError(document.problems)
    root = inline_assertion_schemas(document.root, path)
    return root, msgspec.convert(split_negations(plain_data(root)), CasesFile)


def complete_cases(file: CasesFile) -> list[Case]:
    return [_apply_defaults(case, file.defaults) for case in file.cases]


def _apply_defaults(case: Case, defaults: CaseDefaults) -> Case:
    return replace(
        case,
        params=defaults.params | case.params,
        profile=defaults.profile if case.profile is UNSET else case.profile,
        approvals=defaults.approvals | case.approvals,
        stubs=defaults.stubs | case.stubs,
        clock=ClockSetting(
            start=defaults.clock.start if case.clock.start is UNSET else case.clock.start,
            step=defaults.clock.step if case.clock.step is UNSET else case.clock.step,
        ),
        faults=defaults.faults + case.faults,
        tags=list(dict.fromkeys(defaults.tags + case.tags)),
        skip=defaults.skip if case.skip is UNSET else case.skip,
        assertions=_apply_usage(defaults.assertions, case.usage, defaults.usage, is_own=False)
        + _apply_usage(case.assertions, case.usage, defaults.usage, is_own=True),
    )


def _apply_usage(
    assertions: list[Assertion], of_case: SnapshotUsage | UnsetType, of_file: SnapshotUsage | UnsetType, *, is_own: bool
) -> list[Assertion]:
    """Give a snapshot the `usage` of the case or of the file. That of a case wins over an assertion in `defaults`."""

    def usage(snapshot: JournalSnapshot) -> SnapshotUsage | UnsetType:
        values = (snapshot.usage, of_case, of_file) if is_own else (of_case, snapshot.usage, of_file)
        return next((value for value in values if value is not UNSET), UNSET)

    return [replace(each, usage=usage(each)) if isinstance(each, JournalSnapshot) else each for each in assertions]


def cassette_owner(case: Case, file: Path) -> str:
    """Return the case that records the cassette of a case: the case of that name, else the first case that uses it."""
    if case.cassette_name == case.name:
        return case.name
    users = [each.name for each in read_cases_file(file)[1].cases if each.cassette_name == case.cassette_name]
    return case.cassette_name if case.cassette_name in users else next(iter(users), case.name)


def expects_outcome(case: Case, code: str) -> bool:
    """Whether a run may end with this code: the case asserts it, or injects faults."""
    turns = [] if case.turns is UNSET else [each for each in case.turns if isinstance(each, CaseTurn)]
    assertions = [*case.assertions, *(assertion for turn in turns for assertion in turn.assertions)]
    outcomes = [each for each in assertions if isinstance(each, OutcomeIs)]
    return bool(case.faults) or any(matches_pattern(each.value, code) != each.negated for each in outcomes)
