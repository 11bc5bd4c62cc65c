"""`agentrun provider SCRIPT`"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from agentrun.cli.console import print_stderr
from agentrun.cli.options import SpecFile

if TYPE_CHECKING:
    from agentrun.testing.provider.server import ReceivedRequest


@click.command("provider")
@click.argument("script", type=SpecFile)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Where to listen; 0, the default, picks one.")
@click.option("--once", is_flag=True, help="End when the last turn of the script was answered.")
def command(script: Path, port: int, once: bool) -> int:
    """Play SCRIPT as a model's provider, on this machine, in the formats of all four providers.

    The address is printed on standard output, a line for each request on standard error. In a spec it is the
    `base_url` of any provider: openai, openai-responses, anthropic or gemini. No key is needed, and any is taken.
    It ends with Ctrl-C, or with --once by itself.

    \b
    Examples:
      agentrun provider specs/hello.provider.yaml
      agentrun provider specs/hello.provider.yaml --port 8099 --once
      agentrun validate specs/hello.provider.yaml
    """
    from threading import Event

    from agentrun.errors import SpecError
    from agentrun.spec.problems import DocumentError
    from agentrun.testing.provider import ScriptedProvider

    done = Event()

    def answered(seen: ReceivedRequest) -> None:
        if once and seen.is_turn and seen.turn == server.player.length:
            done.set()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # what a signal brings
        done.set()

    try:
        server = ScriptedProvider(
            script, port=port, listen=lambda seen: print_stderr(_request_line(seen)), after=answered
        )
    except DocumentError as error:
        raise SpecError(error.problems) from None
    except OSError as error:
        raise click.UsageError(f"port {port} cannot be had: {error.strerror}") from None
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with server:
            click.echo(server.url)
            done.wait()
    finally:
        for number, action in before.items():
            signal.signal(number, action)
    print_stderr(_summary(server.requests, server.player.length))
    return 0


def _request_line(seen: ReceivedRequest) -> str:
    from agentrun.spec.problems import escape_invisible

    what = "" if seen.turn is None else f"  turn {seen.turn}" + ("" if seen.is_turn else ", not as it should be")
    return f"{seen.status}  {seen.provider or '-'}  {escape_invisible(seen.path.partition('?')[0])}{what}"


def _summary(requests: list[ReceivedRequest], length: int) -> str:
    answered = {seen.turn for seen in requests if seen.is_turn}
    never = [str(turn) for turn in range(1, length + 1) if turn not in answered]
    rest = f"; never asked for: turn {', '.join(never[:10])}{' …' if len(never) > 10 else ''}" if never else ""
    turns = f"{length - len(never)} of {length} turn{'' if length == 1 else 's'}"
    return f"{len(requests)} request{'' if len(requests) == 1 else 's'}, {turns}{rest}"
