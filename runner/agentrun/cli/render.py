"""`agentrun render SPEC`"""

from __future__ import annotations

from pathlib import Path

import click

from agentrun.cli.console import json_line, json_option
from agentrun.cli.options import param_option, parse_params, spec_options


@click.command("render")
@spec_options
@param_option
@json_option
def command(spec: Path, profile: str | None, settings: tuple[str, ...], params: tuple[str, ...], as_json: bool) -> None:
    """Print the prompts of SPEC as the model gets them: the instructions and the default message.

    \b
    Examples:
      agentrun render specs/triage.yaml
      agentrun render specs/support.yaml --param order_id=7001 --param region=us
    """
    from agentrun.compiler.compile import compile_or_raise
    from agentrun.compiler.prompts import complete_params, locate_render_errors, render_input, render_instructions
    from agentrun.spec.problems import escape_invisible

    read, file = compile_or_raise(spec, profile, settings, needs_lock=False)
    package = file.agent
    values = complete_params(package, parse_params(params, package.params))
    with locate_render_errors(read):
        instructions = render_instructions(package, values)
        message = render_input(package, values)
    if as_json:
        click.echo(json_line({"instructions": instructions, "input": message}))
        return
    for title, text in (("instructions", instructions), ("input", message)):
        click.secho(f"--- {title}", fg="cyan", err=True)
        click.echo("\n".join(map(escape_invisible, text.split("\n"))) if text is not None else "(none)")
