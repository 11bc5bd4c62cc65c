"""`agentrun compile SPEC`"""

from __future__ import annotations

from pathlib import Path

import click

from agentrun.cli.console import json_line, json_option, print_stderr, write_output
from agentrun.cli.options import spec_options


@click.command("compile")
@spec_options
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the package to a file; `-` is standard output.",
)
@json_option
def command(spec: Path, profile: str | None, settings: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Compile SPEC into a self-contained package and print its fingerprint.

    The same spec and lock give the same fingerprint on every machine. --json also prints the fingerprint of each
    section.

    \b
    Examples:
      agentrun compile specs/triage.yaml
      agentrun compile specs/triage.yaml -o triage.package.json
      agentrun compile specs/support.yaml --profile ci --json
    """
    from agentrun.compiler.compile import compile_or_raise
    from agentrun.compiler.package_file import package_bytes

    _, file = compile_or_raise(spec, profile, settings)
    if output is not None:
        write_output(output, package_bytes(file), replaces=b'{"agent":')
        print_stderr(f"package written to {output}" if str(output) != "-" else file.fingerprint)
    if str(output) == "-":
        return
    if as_json:
        click.echo(json_line({"fingerprint": file.fingerprint, "sections": file.sections}))
    else:
        click.echo(file.fingerprint)
