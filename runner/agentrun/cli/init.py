"""`agentrun init DIR`"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from agentrun.cli.show import say

STARTER = Path(__file__).parent / "starter"
TAPE = "cassettes/hello/default.yaml"
HIDDEN = {"gitignore": ".gitignore", "workflow.yml": ".github/workflows/agents.yml"}
"""Files that are called otherwise here: their names would mean something to this project too."""


@click.command("init")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def command(directory: Path) -> None:
    """Make a small project in DIRECTORY that validates, compiles, replays and is tested.

    Existing files are never touched: if one is in the way, nothing is written.

    \b
    Examples:
      agentrun init my-agent
      cd my-agent && agentrun specs/hello.yaml && agentrun test
    """
    from agentrun.cli.requirements import FILE, requirements
    from agentrun.files import user_directory_tree

    if not str(directory).strip(". "):
        directory = Path.cwd()
    text, to_fill_in = requirements()
    files = {**dict(_files()), FILE: text.encode()}
    taken = [name for name in files if os.path.lexists(directory / name)] or _in_the_way(directory, files)
    if taken:
        hint = ", or add `[tool.agentrun]` to your pyproject.toml by hand" if "pyproject.toml" in taken else ""
        raise click.UsageError(
            f"{directory} already has {', '.join(taken)}; nothing was written: choose another name{hint}"
        )
    tree = user_directory_tree(directory)
    for name, content in files.items():
        tree.write(tree.root / name, content)
        say(f"  {name}")
    say(f"\nA project is in {directory}\nNext:\n  cd {shlex.quote(str(directory))}")
    say("  agentrun specs/hello.yaml\n  agentrun test")
    if to_fill_in:
        say(f"\n{to_fill_in}")


def _in_the_way(directory: Path, files: Iterable[str]) -> list[str]:
    """Files that stand where the project needs folders."""
    folders = {directory, *(directory / parent for name in files for parent in Path(name).parents)}
    return sorted(str(folder) for folder in folders if os.path.lexists(folder) and not folder.is_dir())


def _files() -> Iterator[tuple[str, bytes]]:
    """What a project begins with: the starter's files, and the schemas for editors."""
    from agentrun.compiler.schema_files import SCHEMA_NAMES, schema_text

    for path in sorted(STARTER.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            name = path.relative_to(STARTER).as_posix()
            content = path.read_bytes()
            yield HIDDEN.get(name, name), _of_today(content) if name == TAPE else content
    for schema in SCHEMA_NAMES:
        yield f"schemas/{schema}.schema.json", schema_text(schema).encode()


def _of_today(tape: bytes) -> bytes:
    """The recording, which was written by hand and says so, as one of the spec beside it, made now."""
    from agentrun.compiler.compile import compile_spec
    from agentrun.compiler.package_file import seal_package

    package = compile_spec(STARTER / "specs" / "hello.yaml").package
    assert package is not None
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    text = tape.decode()
    for key, value in (("fingerprint", seal_package(package).fingerprint), ("recorded_at", f"'{now}'")):
        text = re.sub(f"(?m)^  {key}: .*$", f"  {key}: {value}", text, count=1)
    return text.encode()
