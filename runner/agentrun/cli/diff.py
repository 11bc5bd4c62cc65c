"""`agentrun diff A B`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentrun.cli.known import known
from agentrun.cli.options import profile_option
from agentrun.cli.show import clean, json_option, say, seen, show_error
from agentrun.errors import AgentrunError, SpecError

if TYPE_CHECKING:
    from agentrun.compiler.package_diff import PackageDifference
    from agentrun.compiler.package_file import PackageFile
    from agentrun.report.change import RunChange
    from agentrun.report.file_diff import FileKind

Place = click.Path(exists=True, path_type=Path)

_KINDS: dict[FileKind, str] = {
    "journal": "a journal",
    "snapshot": "a snapshot",
    "cassette": "a cassette",
    "agent": "a spec or a package",
    "folder": "a folder",
}


@click.command("diff")
@click.argument("a", type=Place)
@click.argument("b", type=Place)
@profile_option
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Markdown, for a comment on a pull request.")
def command(a: Path, b: Path, profile: str | None, as_json: bool, as_markdown: bool) -> int:
    """Say in words how two agents, or two runs of them, differ.

    A and B are two specs or packages (.json), in any mix; two journals or snapshots, in any mix; two recordings; or
    two folders of these, whose files are compared by their names. What a file is, is seen from what stands in it.

    Specs are compared by what they mean: comments, key order and file layout never count. Journals and recordings are
    compared by turn and call, not by line: an argument of a call that changed, a ruling that flipped, a step that is
    new, what was spent. When something happened, or how long it took, never counts.

    \b
    With --json journals and recordings give one object, specs one for each field that differs:
      {"kind", "a", "b", "same", "changes": [{"kind", "how", "text", "run", "turn", "call", "path", "before", "after"}]}
    "how" is new, gone, changed or moved; "path" are the calls that lead to a sub-agent. What does not apply is left
    out. Of folders it is {"kind": "folder", "a", "b", "same", "files": [{"file", …}]}.

    Exit code 0: no differences. 1: there are some. 2: they cannot be read or compared.

    \b
    Examples:
      agentrun diff specs/support.yaml support.package.json
      agentrun diff before.jsonl after.jsonl
      agentrun diff old/default.yaml cassettes/support/default.yaml --json
      agentrun diff old/__snapshots__ specs/__snapshots__ --markdown
    """
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    kind, other = _kinds(a, b)
    if kind == "agent":
        return _agents(a, b, profile, as_json=as_json, as_markdown=as_markdown)
    if profile is not None:
        raise click.UsageError("--profile is for specs")
    from agentrun.cassette.parsed_interaction import load_redacted
    from agentrun.cli.diff_output import show
    from agentrun.report.file_diff import Comparison, FileDiff, NotComparable

    compare = FileDiff(known(), lambda path: load_redacted(path, known()))
    try:
        if kind == "folder":
            found = compare.compare_folders(a, b)
        else:
            found = [Comparison(kind, a, b, compare.compare_files(a, b, kind, other))]
    except NotComparable as error:
        raise click.UsageError(str(error)) from None
    except SpecError:
        raise
    except AgentrunError as error:
        show_error(error, as_json=as_json)
        return 2
    return show(found, a, b, as_json=as_json, as_markdown=as_markdown, folders=kind == "folder")


def _kinds(a: Path, b: Path) -> tuple[FileKind, FileKind]:
    """What the two files are. Raises a usage error if they cannot be compared."""
    one, two = _kind(a), _kind(b)
    if one == two or {one, two} == {"journal", "snapshot"}:
        return one, two
    kinds = f"{a} is {_KINDS[one]} and {b} is {_KINDS[two]}"
    raise click.UsageError(f"{kinds}: only two of a kind can be compared, or a journal and a snapshot")


def _kind(path: Path) -> FileKind:
    from agentrun.report.file_diff import file_kind

    try:
        kind = file_kind(path)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None
    if kind is None:
        raise click.UsageError(f"{path} is no journal, snapshot, cassette, spec or package")
    return kind


def _agents(a: Path, b: Path, profile: str | None, *, as_json: bool, as_markdown: bool) -> int:
    from agentrun.compiler.package_diff import diff_packages

    found = list(map(_redacted, diff_packages(_package(a, profile), _package(b, profile))))
    if as_markdown:
        from agentrun.cli.diff_output import show
        from agentrun.report.file_diff import Comparison

        changes = tuple(map(_change, found))
        return show([Comparison("agent", a, b, changes)], a, b, as_json=False, as_markdown=True, folders=False)
    for difference in found:
        if as_json:
            fields = ("section", "path", "change", "before", "after")
            click.echo(seen(json.dumps({name: getattr(difference, name) for name in fields}, ensure_ascii=False)))
            continue
        _say(difference)
    if not as_json:
        count = len(found)
        say(f"{count} difference{'' if count == 1 else 's'}" if found else "no differences: the fingerprints are equal")
    return 1 if found else 0


def _redacted(difference: PackageDifference) -> PackageDifference:
    """The difference without the credentials of the environment: who writes one into a spec shows it to nobody here."""
    from msgspec.structs import replace

    hide = known()
    before, after = hide.redact_data(difference.before), hide.redact_data(difference.after)
    return replace(difference, path=hide.redact_text(difference.path), before=before, after=after)


def _say(difference: PackageDifference) -> None:
    from agentrun.cli.diff_output import paint

    first, *more = [clean(line) for line in difference.describe().split("\n")]
    paint(first, bold=True)
    for line in more:
        paint(line, fg={"+": "green", "-": "red"}.get(line[4:5]))


def _change(difference: PackageDifference) -> RunChange:
    from agentrun.report.change import ChangeStatus, RunChange
    from agentrun.report.value_diff import ABSENT
    from agentrun.spec.safe_text import short_text

    hows: dict[str, ChangeStatus] = {"added": "new", "removed": "gone", "changed": "changed"}
    return RunChange(
        text=short_text(difference.describe().partition("\n")[0], 400),
        kind="setting",
        how=hows[difference.change],
        before=difference.before if difference.change != "added" else ABSENT,
        after=difference.after if difference.change != "removed" else ABSENT,
    )


def _package(path: Path, profile: str | None) -> PackageFile:
    from agentrun.compiler.compile import compile_or_raise
    from agentrun.compiler.package_file import read_package

    return read_package(path) if path.suffix == ".json" else compile_or_raise(path, profile)[1]
