"""`agentrun init DIR`"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from agentrun.cli.show import say

STARTER = Path(__file__).parent / "starter"


@click.command("init")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def command(directory: Path) -> None:
    """Make a small project in DIRECTORY that validates, compiles and replays.

    Existing files are never touched: if one is in the way, nothing is written.

    \b
    Examples:
      agentrun init my-agent
      cd my-agent && agentrun specs/hello.yaml
    """
    from agentrun.cli.write import write_file

    files = dict(_files())
    taken = [name for name in files if (directory / name).exists()]
    if taken:
        raise click.UsageError(f"{directory} already has {', '.join(taken)}; nothing was written")
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(directory / name, content)
        say(f"  {name}")
    say(f"\nA project is in {directory}. Next:\n  cd {directory}\n  agentrun specs/hello.yaml")


def _files() -> Iterator[tuple[str, bytes]]:
    """What a project begins with: the starter's files, and the schemas for editors."""
    from agentrun.compiler.schemas import NAMES, schema_text

    for path in sorted(STARTER.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            name = path.relative_to(STARTER).as_posix()
            yield ".gitignore" if name == "gitignore" else name, path.read_bytes()
    for schema in NAMES:
        yield f"schemas/{schema}.schema.json", schema_text(schema).encode()
