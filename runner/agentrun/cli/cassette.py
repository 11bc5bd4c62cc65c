"""`agentrun cassette`: what is on the tapes. Each command below it is a module of its own."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

CASSETTE_COMMANDS: dict[str, tuple[str, str]] = {
    "ls": ("List recordings: how old, of which model, fresh or stale.", "cassette_ls"),
    "show": ("Tell a recording in words, interaction by interaction.", "cassette_show"),
    "audit": ("Find recordings that leak, miss, are stale or belong to nobody.", "cassette_audit"),
    "accept": ("Put a new recording in place that its case failed on.", "cassette_accept"),
    "prune": ("Remove what no case plays.", "cassette_prune"),
}
"""Name → what it does, and the module it is in. The texts stand here so that help imports no command."""


class CassetteGroup(click.Group):
    """Imports a command when it is called. Without one it lists."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(CASSETTE_COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in CASSETTE_COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"agentrun.cli.{CASSETTE_COMMANDS[cmd_name][1]}").command
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in CASSETTE_COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_known = bool(args) and args[0] in (*CASSETTE_COMMANDS, *ctx.help_option_names)
        if not is_known and (not args or args[0].startswith("-") or Path(args[0]).exists()):
            args = ["ls", *args]
        return super().parse_args(ctx, args)


@click.group("cassette", cls=CassetteGroup)
def command() -> None:
    """What is on the tapes: list them, tell one in words, find what is wrong, remove what nothing plays.

    \b
    Examples:
      agentrun cassette                                        list them
      agentrun cassette show cassettes/triage/default.yaml     one in words
      agentrun cassette audit --fail-on any --max-age 90d      for CI
      agentrun cassette prune                                  say what could go; --yes removes it
    """
