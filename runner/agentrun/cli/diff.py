"""`agentrun diff A B`"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec.structs import replace

from agentrun.cli.console import (
    json_line,
    json_option,
    print_stderr,
    safe_text,
    show_error,
    wants_color,
)
from agentrun.cli.options import ExistingPath, profile_option
from agentrun.credentials import hidden_secrets
from agentrun.errors import AgentrunError, SpecError
from agentrun.report.change import ChangeStatus, RunChange, changes_markdown, diff_lines, folder_markdown, inline_code
from agentrun.report.file_diff import Comparison, FileDiff, NotComparable, file_kind
from agentrun.report.value_diff import ABSENT
from agentrun.secret import MASK, mask, names_credential
from agentrun.spec.safe_text import plural, short_text

if TYPE_CHECKING:
    from agentrun.cassette.parsed_interaction import ParsedCassette
    from agentrun.compiler.package_diff import PackageDifference
    from agentrun.compiler.package_file import PackageFile
    from agentrun.report.file_diff import FileKind


EXISTING_PATH = ExistingPath(exists=True, path_type=Path)
_KIND_NAMES: dict[FileKind, str] = {
    "journal": "a journal",
    "snapshot": "a snapshot",
    "cassette": "a cassette",
    "agent": "a spec or a package",
    "folder": "a folder",
}
_COLORS = {"new": "green", "gone": "red", "changed": "yellow", "moved": "cyan"}
_SIGNS = {"new": "+", "gone": "-", "changed": "~", "moved": "~"}


@click.command("diff")
@click.argument("a", metavar="[A]", required=False)
@click.argument("b", metavar="[B]", required=False)
@click.option(
    "--since",
    metavar="REVISION",
    help="Compare A, or all files below the working directory, with their state at this git revision.",
)
@profile_option
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown, for a comment on a pull request.")
def command(
    a: str | None, b: str | None, since: str | None, profile: str | None, as_json: bool, as_markdown: bool
) -> int:
    """Explain how two specs, two runs or two cassettes differ.

    A and B are two specs or packages, two journals or snapshots, two cassettes, or two folders whose specs, journals,
    snapshots and cassettes are compared by name. The content of a file decides what it is, not its name. REVISION:PATH
    is a path as it was at a git revision; `diff PATH --since REVISION` is short for `diff REVISION:./PATH PATH`. git
    runs no hooks or filters of the repository for it.

    Specs are compared by meaning: comments, key order and file layout make no difference. Journals and cassettes are
    compared by turn and call, not by line: a changed argument, another policy decision, a new step, the cost. Times
    make no difference.

    \b
    --json prints one object for journals and cassettes, and one object per changed field for specs:
      {"kind", "a", "b", "same", "changes": [{"kind", "how", "text", "run", "turn", "call", "path", "before", "after"}]}
    "how" is new, gone, changed or moved; "path" is the list of calls that leads to a sub-agent. Fields that do not
    apply are left out. For folders it prints {"kind": "folder", "a", "b", "same", "files": [{"file", …}]}.

    Exit codes: 0 no differences, 1 differences, 2 the files cannot be read or compared.

    \b
    Examples:
      agentrun diff specs/support.yaml support.package.json
      agentrun diff before.jsonl after.jsonl
      agentrun diff HEAD:specs/support.yaml specs/support.yaml
      agentrun diff --since main
      agentrun diff specs/__snapshots__ --since main --markdown
      agentrun diff old/default.yaml cassettes/support/default.yaml --json
      agentrun diff old/__snapshots__ specs/__snapshots__ --markdown
    """
    if as_json and as_markdown:
        raise click.UsageError("--json cannot be combined with --markdown")
    if (b is None) == (since is None):
        raise click.UsageError("give a second path B or --since REVISION, and not both")
    a = a or "."
    first, second = (a, b) if b is not None else (f"{since}:./{os.path.relpath(a)}", a)
    with _open_path(first) as one, _open_path(second) as two:
        return _diff(one, two, profile, as_json=as_json, as_markdown=as_markdown)


class ComparedPath(NamedTuple):
    real: Path
    """Where the files are read. At a git revision this is a temporary folder."""
    shown: Path
    """As the user wrote it."""


@contextmanager
def _open_path(text: str) -> Iterator[ComparedPath]:
    """A path, or REVISION:PATH. Raises click.UsageError."""
    path, (revision, colon, inside) = Path(text), text.partition(":")
    if os.path.lexists(path) or not colon:
        yield ComparedPath(EXISTING_PATH.convert(text, None, None), path)
        return
    from agentrun.spec.git_revision import RevisionError, path_at_revision

    try:
        with path_at_revision(revision, inside, Path.cwd()) as real:
            yield ComparedPath(real, path)
    except RevisionError as error:
        raise click.UsageError(str(error)) from None


def _diff(a: ComparedPath, b: ComparedPath, profile: str | None, *, as_json: bool, as_markdown: bool) -> int:
    kind, other = _comparable_kinds(a, b)
    if kind == "agent":
        return _diff_agents(a, b, profile, as_json=as_json, as_markdown=as_markdown)
    if profile is not None:
        raise click.UsageError("--profile can only be used with specs")
    from agentrun.cassette.parsed_interaction import load_redacted

    def load(path: Path) -> ParsedCassette:
        return load_redacted(path, hidden_secrets.redactor)

    def compare_specs(one: Path, two: Path) -> tuple[RunChange, ...]:
        return tuple(map(_to_change, _compare_agents(one, two, None)))

    compare = FileDiff(hidden_secrets.redactor, load, compare_specs)
    try:
        if kind == "folder":
            found = compare.compare_folders(a.real, b.real)
        else:
            found = [Comparison(kind, a.real, b.real, compare.compare_files(a.real, b.real, kind, other))]
    except NotComparable as error:
        raise click.UsageError(_shown_paths(str(error), a, b)) from None
    except SpecError:
        raise
    except AgentrunError as error:
        message = _shown_paths(error.message, a, b)
        show_error(AgentrunError(error.code, message, hint=error.hint, fields=error.fields), as_json=as_json)
        return 2
    found = [replace(each, a=a.shown / each.name, b=b.shown / each.name) for each in found]
    folders = kind == "folder"
    return print_comparisons(found, a.shown, b.shown, as_json=as_json, as_markdown=as_markdown, folders=folders)


def _shown_paths(text: str, *paths: ComparedPath) -> str:
    """A message with the paths that the user wrote."""
    for path in paths:
        text = text.replace(str(path.real), str(path.shown))
    return text


def _comparable_kinds(a: ComparedPath, b: ComparedPath) -> tuple[FileKind, FileKind]:
    """The kinds of the two files. Raises click.UsageError if they cannot be compared."""
    one, two = _kind_of_file(a), _kind_of_file(b)
    if one == two or {one, two} == {"journal", "snapshot"}:
        return one, two
    kinds = f"{a.shown} is {_KIND_NAMES[one]} and {b.shown} is {_KIND_NAMES[two]}"
    raise click.UsageError(f"{kinds}; only files of the same kind can be compared, or a journal and a snapshot")


def _kind_of_file(path: ComparedPath) -> FileKind:
    try:
        kind = file_kind(path.real)
    except OSError as error:
        raise click.UsageError(f"{path.shown} cannot be read: {error.strerror}") from None
    if kind is None:
        raise click.UsageError(f"{path.shown} is not a journal, snapshot, cassette, spec or package")
    return kind


def _diff_agents(a: ComparedPath, b: ComparedPath, profile: str | None, *, as_json: bool, as_markdown: bool) -> int:
    found = _compare_agents(a.real, b.real, profile)
    if as_markdown:
        comparison = Comparison("agent", a.shown, b.shown, tuple(map(_to_change, found)))
        return print_comparisons([comparison], a.shown, b.shown, as_json=False, as_markdown=True, folders=False)
    for difference in found:
        if as_json:
            fields = ("section", "path", "change", "before", "after")
            click.echo(json_line({name: getattr(difference, name) for name in fields}))
        else:
            _print_difference(difference)
    if not as_json:
        print_stderr(plural(len(found), "difference") if found else "no differences: the fingerprints are equal")
    return 1 if found else 0


def _compare_agents(a: Path, b: Path, profile: str | None) -> list[PackageDifference]:
    from agentrun.compiler.package_diff import diff_packages

    return list(map(_redact_difference, diff_packages(_read_agent(a, profile), _read_agent(b, profile))))


def _redact_difference(difference: PackageDifference) -> PackageDifference:
    """The difference without credentials of the environment, in case a spec contains one."""
    redactor = hidden_secrets.redactor
    before, after = redactor.redact_data(difference.before), redactor.redact_data(difference.after)
    return replace(difference, path=redactor.redact_text(difference.path), before=before, after=after)


def _print_difference(difference: PackageDifference) -> None:
    first, *more = [safe_text(line) for line in difference.describe().split("\n")]
    print_styled(first, bold=True)
    for line in more:
        print_styled(line, fg={"+": "green", "-": "red"}.get(line[4:5]))


def _to_change(difference: PackageDifference) -> RunChange:
    hows: dict[str, ChangeStatus] = {"added": "new", "removed": "gone", "changed": "changed"}
    return RunChange(
        text=short_text(difference.describe().partition("\n")[0], 400),
        kind="setting",
        how=hows[difference.change],
        before=difference.before if difference.change != "added" else ABSENT,
        after=difference.after if difference.change != "removed" else ABSENT,
    )


def _read_agent(path: Path, profile: str | None) -> PackageFile:
    from agentrun.compiler.compile import compile_or_raise
    from agentrun.compiler.package_file import read_package

    return read_package(path) if path.suffix == ".json" else compile_or_raise(path, profile, needs_lock=False)[1]


def print_comparisons(
    found: list[Comparison], a: Path, b: Path, *, as_json: bool, as_markdown: bool, folders: bool
) -> int:
    if as_json:
        click.echo(json_line(_folder_data(found, a, b) if folders else _file_data(found[0])))
    elif as_markdown:
        click.echo(_markdown(found, a, b, folders=folders), nl=False)
    else:
        _print_text(found, folders=folders)
    return 1 if any(each.changes for each in found) else 0


def _print_text(found: list[Comparison], *, folders: bool) -> None:
    for each in found:
        if folders and each.changes:
            print_styled(safe_text(each.name), bold=True)
        for change in each.changes:
            print_styled(f"{_SIGNS[change.how]} {safe_text(change.text)}", fg=_COLORS[change.how])
            for line in diff_lines(change):
                print_styled(f"    {safe_text(line)}", fg={"+": "green", "-": "red"}.get(line[:1]))
    count = sum(len(each.changes) for each in found)
    files = sum(bool(each.changes) for each in found)
    within = f" in {files} of {plural(len(found), 'file')}" if folders else ""
    print_stderr(f"{plural(count, 'difference')}{within}" if count else "no differences")


def print_styled(text: str, *, fg: str | None = None, bold: bool = False) -> None:
    click.secho(text, fg=fg, bold=bold or None, color=wants_color(sys.stdout))


def _markdown(found: list[Comparison], a: Path, b: Path, *, folders: bool) -> str:
    title = f"{inline_code(safe_text(str(a)))} → {inline_code(safe_text(str(b)))}"
    if not folders:
        return changes_markdown(title, _safe_changes(found[0].changes))
    changed = [(safe_text(each.name), _safe_changes(each.changes)) for each in found if each.changes]
    return folder_markdown(title, changed, len(found))


def _safe_changes(changes: tuple[RunChange, ...]) -> tuple[RunChange, ...]:
    return tuple(replace(each, text=safe_text(each.text)) for each in changes)


def _file_data(compared: Comparison) -> dict[str, Any]:
    return {
        "kind": compared.kind,
        "a": safe_text(str(compared.a)),
        "b": safe_text(str(compared.b)),
        "same": not compared.changes,
        "changes": [_change_data(each) for each in compared.changes],
    }


def _folder_data(found: list[Comparison], a: Path, b: Path) -> dict[str, Any]:
    files = [{"file": safe_text(each.name), **_file_data(each)} for each in found]
    same = not any(each.changes for each in found)
    return {"kind": "folder", "a": safe_text(str(a)), "b": safe_text(str(b)), "same": same, "files": files}


def _change_data(change: RunChange) -> dict[str, Any]:
    """A change as plain data, without the fields that do not apply."""
    data: dict[str, Any] = {
        "kind": change.kind,
        "how": change.how,
        "text": safe_text(change.text),
        "run": change.run,
        "turn": change.turn,
        "call": change.call,
        "path": change.path or None,
    }
    data = {key: value for key, value in data.items() if value is not None}
    values = {"before": change.before, "after": change.after}
    return data | {key: _mask_data(value) for key, value in values.items() if value is not ABSENT}


def _mask_data(value: Any, key: str = "") -> Any:
    match value:
        case str():
            return MASK if names_credential(key) else mask(hidden_secrets.redactor.redact_text(value))
        case dict():
            return {mask(str(name)): _mask_data(item, str(name)) for name, item in value.items()}
        case list() | tuple():
            return [_mask_data(item) for item in value]
        case None | bool() | int() | float():
            return value
    return str(value)
