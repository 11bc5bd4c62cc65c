"""`agentrun provider SCRIPT`"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from agentrun.cli.console import document_problems, print_stderr
from agentrun.cli.options import ExistingFile
from agentrun.spec.safe_text import plural

if TYPE_CHECKING:
    from agentrun.testing.provider.server import ReceivedRequest


@click.command("provider")
@click.argument("script", type=ExistingFile)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The port to listen on; 0, the default, picks a free one."
)
@click.option("--once", is_flag=True, help="Exit after the last turn of the script.")
def command(script: Path, port: int, once: bool) -> int:
    """Serve SCRIPT as a model provider on this machine, in the wire formats of all four providers.

    The address is printed on standard output, and one line for each request on standard error. Use the address as
    `base_url` of any provider: openai, openai-responses, anthropic or gemini. Any API key is accepted. Stop it with
    Ctrl-C; with --once it stops by itself.

    \b
    Examples:
      agentrun provider specs/hello.provider.yaml
      agentrun provider specs/hello.provider.yaml --port 8099 --once
      agentrun validate specs/hello.provider.yaml
    """
    from threading import Event

    from agentrun.testing.provider import ScriptedProvider

    done = Event()

    def answered(seen: ReceivedRequest) -> None:
        if once and seen.is_turn and seen.turn == server.player.length:
            done.set()

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # the signature of a signal handler
        done.set()

    try:
        with document_problems():
            server = ScriptedProvider(
                script, port=port, listen=lambda seen: print_stderr(_request_line(seen)), after=answered
            )
    except OSError as error:
        raise click.UsageError(f"cannot listen on port {port}: {error.strerror}") from None
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

    what = "" if seen.turn is None else f"  turn {seen.turn}" + ("" if seen.is_turn else ", not as expected")
    return f"{seen.status}  {seen.provider or '-'}  {escape_invisible(seen.path.partition('?')[0])}{what}"


def _summary(requests: list[ReceivedRequest], length: int) -> str:
    answered = {seen.turn for seen in requests if seen.is_turn}
    never = [str(turn) for turn in range(1, length + 1) if turn not in answered]
    rest = f"; not requested: turn {', '.join(never[:10])}{' …' if len(never) > 10 else ''}" if never else ""
    return f"{plural(len(requests), 'request')}, {length - len(never)} of {plural(length, 'turn')}{rest}"
