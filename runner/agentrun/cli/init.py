"""`agentrun init DIR`

Rule 1  All changes are shown before the first one is made.
Rule 2  Nothing is overwritten: a file that exists gets additional lines or stays as it is.
Rule 3  If one change cannot be made, none is.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, cast

import click

from agentrun.cli.console import print_stderr
from agentrun.distribution import DISTRIBUTION_NAME, git_pin, install_origin, run_git
from agentrun.spec.safe_text import join_words

STARTER = Path(__file__).parent / "starter"
STARTER_CASSETTE = "cassettes/hello/default.yaml"
EXAMPLE_FOLDERS = ("specs/", "cassettes/")
RENAMED_FILES = {
    "gitignore": ".gitignore",
    "vscode.json": ".vscode/settings.json",
    "workflow.yml": ".github/workflows/agents.yml",
}
"""Files with another name here, because tools would read them as files of this project."""
REQUIREMENTS_FILE = "requirements-agents.txt"
_HEAD = "# Installed by the workflow .github/workflows/agents.yml.\n"
_PUSH = "# The commit of the checkout that wrote this file. Push it before the workflow runs.\n"
_UNKNOWN = "This agentrun was not installed from an address that other machines can reach."
_FILL_IN = f"Before the workflow can install it, set a repository and a commit in {REQUIREMENTS_FILE}, without the `#`:"
_EXAMPLE = f"{DISTRIBUTION_NAME} @ git+https://HOST/OWNER/REPOSITORY@COMMIT"


class ProjectChange(NamedTuple):
    """What `init` does with one file."""

    name: str
    content: bytes | None
    """The whole new content. None: the file stays as it is."""
    note: str = ""
    """What is added to an existing file, or why it stays as it is."""


@click.command("init")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("-y", "--yes", is_flag=True, help="Add to existing files without asking.")
def command(directory: Path, yes: bool) -> None:
    """Add agentrun to the project in DIRECTORY, or create a new one.

    Adds a spec with a test case and its cassette, the schemas for editors, a workflow for CI, `[tool.agentrun]` in
    pyproject.toml and lines in .gitignore. It first shows what it will change. No file is overwritten: pyproject.toml,
    .gitignore and .vscode/settings.json get additional lines, and all other existing files stay as they are.

    \b
    Examples:
      agentrun init my-agent
      cd my-agent && agentrun specs/hello.yaml && agentrun test
      agentrun init .                           in a project that has a pyproject.toml
    """
    from agentrun.files import user_directory_tree

    if not str(directory).strip(". "):
        directory = Path.cwd()
    text, to_fill_in = make_requirements()
    files = {**dict(_project_files()), REQUIREMENTS_FILE: text.encode()}
    if blocking := _blocking_files(directory, files):
        raise click.UsageError(f"{join_words(blocking)} is in the way, so nothing was written")
    changes = plan_changes(directory, files)
    _show_changes(directory, changes)
    written = [change for change in changes if change.content is not None]
    if links := _links(directory, (change.name for change in written)):
        replace = f"replace {join_words(links)} by a real file or directory"
        raise click.UsageError(f"symbolic links are not followed, so nothing was written; {replace}")
    if any(change.note for change in written) and not yes and sys.stdin.isatty():
        click.confirm("Continue?", default=True, abort=True, err=True)
    tree = user_directory_tree(directory)
    for change in written:
        tree.write(tree.root / change.name, cast(bytes, change.content))
    enter = [] if directory.samefile(Path.cwd()) else [f"cd {shlex.quote(str(directory))}"]
    print_stderr("\n  ".join(["\nNext:", *enter, "agentrun specs/hello.yaml", "agentrun test"]))
    if to_fill_in and any(change.name == REQUIREMENTS_FILE for change in written):
        print_stderr(f"\n{to_fill_in}")


def plan_changes(directory: Path, files: Mapping[str, bytes]) -> list[ProjectChange]:
    example = [name for name in files if name.startswith(EXAMPLE_FOLDERS)]
    taken = next((name for name in example if os.path.lexists(directory / name)), None)
    changes = []
    for name, content in files.items():
        path = directory / name
        if name in example and taken is not None:
            if name == taken:
                changes.append(ProjectChange(name, None, "exists; the example is left out"))
        elif not os.path.lexists(path):
            changes.append(ProjectChange(name, content))
        elif name in ADDED_LINES:
            changes.append(_add_lines(name, path, has_specs=taken is None or (directory / "specs").is_dir()))
        else:
            changes.append(ProjectChange(name, None, "exists and stays as it is"))
    return changes


class AddedLines(NamedTuple):
    """What an existing file lacks."""

    lines: list[str]
    offset: int | None = None
    """Where they are inserted. None: at the end."""


def _add_lines(name: str, path: Path, *, has_specs: bool) -> ProjectChange:
    """An existing file with the lines that it lacks. `has_specs`: whether there is, or will be, a folder `specs`."""
    source = "src" if (path.parent / "src").is_dir() else "."
    try:
        before = path.read_bytes().decode()
        lines, offset = ADDED_LINES[name](before, ["specs", source] if has_specs else [source])
    except (OSError, ValueError) as error:  # not UTF-8, or no lines can be added
        reason = getattr(error, "strerror", None) or str(error)
        raise click.UsageError(f"{path} cannot be extended: {reason}; nothing was written") from None
    if not lines:
        return ProjectChange(name, None, "needs no change")
    head, rest = before[:offset], "" if offset is None else before[offset:]
    line_end = "\r\n" if "\r\n" in before else "\n"
    gap = "" if not head or head.endswith("\n") else line_end
    end = "" if rest.lstrip(" \t")[:1] in ("\r", "\n") else line_end
    return ProjectChange(name, f"{head}{gap}{line_end.join(lines)}{end}{rest}".encode(), "\n".join(lines))


def _pyproject_lines(text: str, import_roots: list[str]) -> AddedLines:
    if "agentrun" in tomllib.loads(text).get("tool", {}):
        return AddedLines([])
    lines = [*([""] if text else []), "[tool.agentrun]", f"import_roots = {json.dumps(import_roots)}"]
    try:
        tomllib.loads("\n".join([text, *lines]))
    except ValueError:
        raise ValueError("`tool` is an inline table, so [tool.agentrun] cannot be added; write tables") from None
    return AddedLines(lines)


def _gitignore_lines(text: str, _import_roots: list[str]) -> AddedLines:
    ignored = {line.strip().strip("/") for line in text.splitlines()}
    lines = (STARTER / "gitignore").read_text(encoding="utf-8").splitlines()
    return AddedLines([line for line in lines if line.strip("/") not in ignored])


_COMMENTS = r"(?:\s++|//[^\n]*+|/\*.*?\*/)*+"
_settings_start = re.compile(rf"\ufeff?{_COMMENTS}\{{(?=({_COMMENTS}\}})?)", re.DOTALL)
"""The beginning of JSON with comments. The group matches if the object is empty."""


def _editor_lines(text: str, _import_roots: list[str]) -> AddedLines:
    if '"yaml.schemas"' in text:
        return AddedLines([])
    first, *lines, last = (STARTER / "vscode.json").read_text(encoding="utf-8").splitlines()
    if not text.strip():
        return AddedLines([first, *lines, last])
    start = _settings_start.match(text)
    if start is None:
        raise ValueError("it is not a JSON object")
    lines[-1] += "" if start[1] else ","
    return AddedLines(lines, start.end())


ADDED_LINES: dict[str, Callable[[str, list[str]], AddedLines]] = {
    "pyproject.toml": _pyproject_lines,
    ".gitignore": _gitignore_lines,
    ".vscode/settings.json": _editor_lines,
}
"""Existing files that get lines, and the lines that a text lacks. Raises ValueError if it cannot get them."""


def _show_changes(directory: Path, changes: list[ProjectChange]) -> None:
    print_stderr(f"Files in {directory}:")
    for change in changes:
        if change.content is None:
            print_stderr(f"  {change.name}: {change.note}")
        elif change.note:
            print_stderr(f"  {change.name}: add")
            for line in change.note.splitlines():
                print_stderr(f"    + {line}" if line else "    +")
        else:
            print_stderr(f"  {change.name}: new")


def _blocking_files(directory: Path, files: Iterable[str]) -> list[str]:
    """Files where the project needs folders, and folders where it needs files."""
    folders = {directory, *(directory / parent for name in files for parent in Path(name).parents)}
    wrong = {folder for folder in folders if os.path.lexists(folder) and not folder.is_dir()}
    return sorted(map(str, wrong | {directory / name for name in files if (directory / name).is_dir()}))


def _links(directory: Path, names: Iterable[str]) -> list[str]:
    """Symbolic links in the place of files, or of their folders."""
    paths = {directory / each for name in names for each in (Path(name), *Path(name).parents[:-1])}
    return sorted(str(path) for path in paths if path.is_symlink())


def _project_files() -> Iterator[tuple[str, bytes]]:
    """The files of a new project: the starter's files, and the schemas for editors."""
    from agentrun.compiler.schema_files import SCHEMA_NAMES, schema_text

    for path in sorted(STARTER.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            name = path.relative_to(STARTER).as_posix()
            content = path.read_bytes()
            yield RENAMED_FILES.get(name, name), _update_cassette(content) if name == STARTER_CASSETTE else content
    for schema in SCHEMA_NAMES:
        yield f"schemas/{schema}.schema.json", schema_text(schema).encode()


def _update_cassette(cassette: bytes) -> bytes:
    """The cassette of the starter with the current time and the fingerprint of its spec. It was written by hand."""
    from agentrun.compiler.compile import compile_spec
    from agentrun.compiler.package_file import seal_package

    package = compile_spec(STARTER / "specs" / "hello.yaml").package
    assert package is not None
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    text = cassette.decode()
    for key, value in (("fingerprint", seal_package(package).fingerprint), ("recorded_at", f"'{now}'")):
        text = re.sub(f"(?m)^  {key}: .*$", f"  {key}: {value}", text, count=1)
    return text.encode()


def make_requirements() -> tuple[str, str | None]:
    """The text of `requirements-agents.txt`, and a message if the user has to edit it first."""
    origin = install_origin()
    if origin.pin:
        return f"{_HEAD}{DISTRIBUTION_NAME}{origin.pin}\n", None
    if origin.checkout and (pin := _checkout_pin(origin.checkout)):
        return f"{_HEAD}{_PUSH}{DISTRIBUTION_NAME}{pin}\n", None
    return f"{_HEAD}# {_UNKNOWN}\n# {_FILL_IN}\n# {_EXAMPLE}\n", f"{_UNKNOWN}\n{_FILL_IN}\n  {_EXAMPLE}"


def _checkout_pin(checkout: Path) -> str:
    """The commit of a checkout with the URL of a remote, `origin` first. Empty without git, a commit or a remote."""
    top, _, commit = run_git(checkout, "rev-parse", "--show-toplevel", "HEAD")[1].strip().partition("\n")
    if not top or not os.path.samefile(top, checkout):  # inside the repository of another project
        return ""
    _, listed = run_git(checkout, "config", "--local", "--null", "--get-regexp", r"^remote\..*\.url$")
    remotes = [item.partition("\n") for item in listed.split("\0")]
    urls = [url for _, _, url in sorted(remotes, key=lambda remote: remote[0] != "remote.origin.url")]
    return next((pin for url in urls if (pin := git_pin(url, commit))), "")
