"""`agentrun cassette`: the group of commands about cassettes."""

from __future__ import annotations

from pathlib import Path

import click

from agentrun.cli.group import LazyGroup

CASSETTE_COMMANDS: dict[str, tuple[str, str]] = {
    "ls": ("List cassettes with their age, model and state.", "cassette_ls"),
    "show": ("Show the interactions of a cassette as text.", "cassette_show"),
    "audit": ("Find secrets, damage, misses and unused or outdated cassettes.", "cassette_audit"),
    "accept": ("Use a new cassette although its case fails.", "cassette_accept"),
    "prune": ("Remove cassettes and interactions that no case uses.", "cassette_prune"),
}


class CassetteGroup(LazyGroup):
    """Runs `ls` if no command is given."""

    commands_by_name = CASSETTE_COMMANDS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_known = bool(args) and args[0] in (*CASSETTE_COMMANDS, *ctx.help_option_names)
        if not is_known and (not args or args[0].startswith("-") or Path(args[0]).exists()):
            args = ["ls", *args]
        return super().parse_args(ctx, args)


@click.group("cassette", cls=CassetteGroup)
def command() -> None:
    """List, show, audit and prune cassettes.

    \b
    Examples:
      agentrun cassette                                        list all cassettes
      agentrun cassette show cassettes/triage/default.yaml     show one as text
      agentrun cassette audit --fail-on any --max-age 90d      check them in CI
      agentrun cassette prune                                  show what can be removed; --yes removes it
    """
