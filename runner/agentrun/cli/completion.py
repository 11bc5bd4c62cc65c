"""`agentrun completion SHELL`"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    Examples:
      eval "$(agentrun completion bash)"                                  in ~/.bashrc
      eval "$(agentrun completion zsh)"                                   in ~/.zshrc
      agentrun completion fish > ~/.config/fish/completions/agentrun.fish
    """
    from agentrun.cli.group import root_command

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(root_command, {}, "agentrun", "_AGENTRUN_COMPLETE").source())
