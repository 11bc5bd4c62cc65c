"""The command `root_command`: finds the command that is meant and turns errors into exit codes."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, shell_complete

from agentrun.errors import AgentrunError, SpecError, code_of

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("Run an agent. `agentrun SPEC` is short for it.", "run"),
    "init": ("Make a small project that validates, compiles and replays.", "init"),
    "validate": ("Point out mistakes in specs, shared parts, cases and packages.", "validate"),
    "render": ("Print the exact prompts a spec gives.", "render"),
    "compile": ("Compile a spec into a fingerprinted package.", "compile"),
    "lock": ("Pin prices, context windows and the tools of MCP servers beside a spec.", "lock"),
    "diff": ("Say in words how two agents, runs or recordings differ.", "diff"),
    "schema": ("Print or write the JSON Schemas, for editors.", "schema"),
    "doctor": ("Say what is installed and set, and what would not work.", "doctor"),
    "provider": ("Play a script as a model's provider, to test against.", "provider"),
    "test": ("Run the cases of agents, and say what they now do differently.", "test"),
    "cassette": ("List, tell, check and prune recordings.", "cassette"),
    "completion": ("Print the completion script for a shell.", "completion"),
}
"""Name → what it does, and the module it is in. The texts stand here so that help imports no command."""

EPILOG = """\b
Examples:
  agentrun specs/triage.yaml                   replay the agent offline
  agentrun validate specs/                     find mistakes, with line and fix
  agentrun compile specs/triage.yaml           print the fingerprint
  agentrun test specs/                         run the cases, offline
  agentrun init my-agent                       start a project

Exit codes: 0 done, 1 differs, 2 spec or usage, 3 cassette, 4 policy, 5 limit, 6 provider or tool, 7 storage,
8 suspended, 9 busy, 70 our bug, 130 cancelled."""


class AgentrunGroup(click.Group):
    """Knows its commands by name, imports one when it is called, and takes a spec in place of a command."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"agentrun.cli.{COMMANDS[cmd_name][1]}")
        command: click.Command = module.command
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = ("-h", "--help", "--version")
        if args and args[0] not in (*own, *COMMANDS) and (args[0].startswith("-") or _is_spec(args[0])):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            from agentrun.spec.problems import did_you_mean, escape_invisible

            hint = did_you_mean(args[0], COMMANDS) or "agentrun --help lists the commands"
            raise click.UsageError(f"{escape_invisible(args[0])!r} is neither a command nor a spec file: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, and files: a spec stands where a command does."""
        return [*super().shell_complete(ctx, incomplete), CompletionItem(incomplete, type="file")]


def run_command(args: list[str]) -> int:
    """Runs a command and gives its exit code; what it says about errors holds no secret."""
    from agentrun.cli.console import safe_text, show_error, show_problems

    instruction = os.environ.get("_AGENTRUN_COMPLETE")
    if instruction:
        return shell_complete(root_command, {}, "agentrun", "_AGENTRUN_COMPLETE", instruction)
    meta: dict[str, Any] = {}
    try:
        # Not `root_command.main()`: a reader that has left (`| head`) would be exit code 1, which means «differs» here.
        with root_command.make_context("agentrun", args, obj=meta) as context:
            result = root_command.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        return code_of("cancelled").exit
    except click.exceptions.NoArgsIsHelpError as menu:
        click.echo(menu.format_message())
        return 0
    except click.ClickException as error:
        if meta.get("json"):
            said = {"code": "usage", "message": safe_text(error.format_message()), "exit": error.exit_code}
            click.echo(json.dumps({"error": said}, ensure_ascii=False))
            return error.exit_code
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
        click.echo(f"Error: {safe_text(error.format_message())}", err=True)
        return error.exit_code
    except SpecError as error:
        show_problems(list(error.problems), as_json=bool(meta.get("json")))
        return error.exit_code
    except AgentrunError as error:
        show_error(error, as_json=bool(meta.get("json")))
        return error.exit_code
    return result if isinstance(result, int) else 0


def _is_spec(word: str) -> bool:
    return word.endswith((".yaml", ".yml")) or "/" in word or Path(word).is_file()


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from agentrun.distribution import version

        click.echo(f"agentrun {version()}")
        context.exit()


@click.group("agentrun", cls=AgentrunGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def root_command() -> None:
    """Test LLM agents like code: declared in YAML, compiled, recorded once, replayed offline.

    \b
    agentrun SPEC [MESSAGE]      run an agent
    agentrun COMMAND --help      what a command does, with examples
    """
