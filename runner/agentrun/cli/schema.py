"""`agentrun schema [NAME]`"""

from __future__ import annotations

from pathlib import Path

import click

from agentrun.cli.console import print_stderr


@click.command("schema")
@click.argument("name", required=False)
@click.option(
    "--write",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the schemas to a directory.",
)
def command(name: str | None, directory: Path | None) -> None:
    """Print or write the JSON Schemas for editors.

    Without NAME the names are listed. Editors with yaml-language-server then offer completion and hover texts for a
    document that begins with this line:

    \b
      # yaml-language-server: $schema=../schemas/agent.schema.json

    \b
    Examples:
      agentrun schema
      agentrun schema agent > agent.schema.json
      agentrun schema --write schemas
    """
    from agentrun.compiler.schema_files import SCHEMA_NAMES, schema_text
    from agentrun.files import user_directory_tree
    from agentrun.spec.safe_text import plural

    if name is not None and name not in SCHEMA_NAMES:
        raise click.UsageError(f"there is no schema {name!r}; the schemas are {', '.join(SCHEMA_NAMES)}")
    names = SCHEMA_NAMES if name is None else (name,)
    if directory is not None:
        tree = user_directory_tree(directory)
        for one in names:
            tree.write(tree.root / f"{one}.schema.json", schema_text(one).encode())
        print_stderr(f"{plural(len(names), 'schema')} written to {directory}")
    elif name is None:
        click.echo("\n".join(SCHEMA_NAMES))
    else:
        click.echo(schema_text(name), nl=False)
