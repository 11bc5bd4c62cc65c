"""The root command: finds the command to run and turns errors into exit codes."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from shlex import quote
from typing import Any

import click
from click.shell_completion import CompletionItem, shell_complete

from agentrun.errors import AgentrunError, SpecError, code_of

COMMANDS: dict[str, str] = {
    "run": "Run an agent. `agentrun SPEC` is short for `agentrun run SPEC`.",
    "test": "Run test cases against their cassettes and report what changed.",
    "init": "Create a small project with a spec, a case and a cassette.",
    "validate": "Check specs, shared files, cases and packages for mistakes.",
    "render": "Print the prompts that the model gets.",
    "compile": "Compile a spec into a package and print its fingerprint.",
    "lock": "Pin prices, context windows and MCP tools in a lock file next to the spec.",
    "diff": "Explain how two specs, runs or cassettes differ.",
    "resume": "Continue a run that was interrupted, was parked, or waits for something.",
    "settle": "Decide about a call whose outcome is not known, and continue the run.",
    "approvals": "List the approvals that runs wait for, with exactly what would run.",
    "approve": "Approve a call that a run waits for, and continue the run.",
    "deny": "Deny a call that a run waits for, and continue the run.",
    "send": "Send a message to a run that is not finished.",
    "cancel": "Cancel a run and its sub-agents, even if another process works on it.",
    "show": "Show a run from its journal: turns, calls, rulings, spend and outcome.",
    "view": "Write a run as one HTML page: what the agent did, and why.",
    "events": "Print the events of runs, and follow runs of other processes.",
    "verify": "Verify that the journal of a run is intact.",
    "audit": "Check that this release would make the same decisions as a journal.",
    "store": "Show where runs are stored, and trust a store.",
    "cassette": "List, show, audit and prune cassettes.",
    "runs": "List and remove stored runs.",
    "sessions": "List, show, fork and remove sessions.",
    "provider": "Serve a script as a model provider on this machine.",
    "schema": "Print or write the JSON Schemas for editors.",
    "doctor": "Check the installation and the environment.",
    "completion": "Print the completion script for a shell.",
}
"""Name of the command and of its module → its help text. The texts are here so that `--help` imports no command."""

EPILOG = """\b
Examples:
  agentrun specs/triage.yaml                   replay an agent offline
  agentrun test specs/                         run the test cases offline
  agentrun validate specs/                     find mistakes, with line and fix
  agentrun diff old.yaml new.yaml              explain what changed
  agentrun init my-agent                       create a project

Exit codes: 0 success, 1 an assertion or a comparison failed, 2 spec or usage, 3 cassette, 4 policy, 5 limit,
6 provider or tool, 7 storage, 8 suspended or parked, 9 busy, 70 a bug in agentrun, 130 cancelled."""


class AgentrunGroup(click.Group):
    """Imports the module of a command when the command is used. Accepts the path of a spec in place of a command."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"agentrun.cli.{cmd_name}").command
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = ("-h", "--help", "--version")
        if args and args[0] not in (*own, *COMMANDS) and (args[0].startswith("-") or _is_spec(args[0])):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            from agentrun.spec.problems import did_you_mean, escape_invisible
            from agentrun.spec.source_files import did_you_mean_path

            hint = did_you_mean(args[0], COMMANDS) or did_you_mean_path(Path(args[0]))
            hint = hint or "agentrun --help lists the commands"
            if Path(args[0]).is_dir():
                hint = f"to run the cases in this folder: agentrun test {quote(args[0])}"
            raise click.UsageError(f"{escape_invisible(args[0])!r} is neither a command nor a spec file: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and files, because a spec may take the place of a command. In bash, an item for files removes those
        before it."""
        return [CompletionItem(incomplete, type="file"), *super().shell_complete(ctx, incomplete)]


def run_command(args: list[str]) -> int:
    """Run a command and return its exit code. Errors are printed without secrets."""
    from agentrun.cli.console import json_line, safe_text, show_error, show_problems
    from agentrun.credentials import hidden_secrets
    from agentrun.spec.project import working_secrets

    hidden_secrets.read_environment(working_secrets)

    instruction = os.environ.get("_AGENTRUN_COMPLETE")
    if instruction:
        return shell_complete(root_command, {}, "agentrun", "_AGENTRUN_COMPLETE", instruction)
    meta: dict[str, Any] = {}
    try:
        # Not `root_command.main()`: for a closed pipe (`| head`) it exits with 1, which means "differs" here.
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
            data = {"code": "usage", "message": safe_text(error.format_message()), "exit": error.exit_code}
            click.echo(json_line({"error": data}))
            return error.exit_code
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
        click.echo(f"Error: {safe_text(error.format_message())}", err=True)
        return error.exit_code
    except SpecError as error:
        show_problems(error.problems, as_json=bool(meta.get("json")))
        return error.exit_code
    except AgentrunError as error:
        show_error(error, as_json=bool(meta.get("json")))
        return error.exit_code
    return result if isinstance(result, int) else 0


def _is_spec(word: str) -> bool:
    return (word.endswith((".yaml", ".yml")) or "/" in word or Path(word).is_file()) and not Path(word).is_dir()


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
    """Test LLM agents like code: declare them in YAML, record a run once, replay it offline.

    \b
    agentrun SPEC [MESSAGE]      run an agent
    agentrun COMMAND --help      show the help of a command, with examples
    """
