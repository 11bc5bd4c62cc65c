"""What a run in real time finds around it: the environment, the network, and the values that must not be shown.

Rule 1  A value of the environment that must not be shown is in no fact, no event and no file of the run. What says no
        is cleaned as it comes in: its words are cut for a fault, and half of a secret is known to nobody.
Rule 2  Close them at the end.

Importing this takes a second: only what goes live does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentrun.cassette.redaction import text_without
from agentrun.cassette.scrub import scrubbed
from agentrun.cassette.tape import Interaction
from agentrun.core.package import Package
from agentrun.engine.known import known_values
from agentrun.engine.live import live_providers, live_sender
from agentrun.engine.live_ports import LivePorts, Site, live_ports
from agentrun.engine.ports import Provider
from agentrun.engine.settings import Settings
from agentrun.redact import Redactor
from agentrun.spec.project import Project
from agentrun.wire import HttpCall, HttpReply, Sender


class Surroundings:
    """What one run finds."""

    def __init__(self, package: Package, env_file: Path | None = None) -> None:
        """`package`: names what counts as a credential. Raises `host.missing` for a file that is not there."""
        self._settings = Settings(env_file)
        self.known = known_values(package, self._settings.variables())
        self.redactor = Redactor(self.known)
        self._sender = live_sender(self._settings)
        self._ports = LivePorts()

    def providers(self, package: Package) -> dict[str, Provider]:
        """The real models."""
        return live_providers(package, self._settings, _Refusals(self._sender, self.redactor))

    def ports(
        self, package: Package, project: Project, printed: Callable[[str, str], None], write: Callable[[str], None]
    ) -> LivePorts:
        """Who does what the tools, hooks and sinks of a package ask for."""
        site = Site(
            root=project.root,
            import_roots=tuple(project.root / root for root in project.import_roots),
            lookup=self._settings.secret,
            sender=self._sender,
            clean=lambda text: text_without(text, self.redactor),
            printed=printed,
            write=write,
        )
        self._ports = live_ports(package, site)
        return self._ports

    async def close(self) -> None:
        await self._ports.close()
        await self._sender.close()


class _Refusals:
    """Sends requests. A reply that is no success comes without values that must not be shown."""

    def __init__(self, sender: Sender, redactor: Redactor) -> None:
        self._sender = sender
        self._redactor = redactor

    async def send(
        self, call: HttpCall, *, gap: int, time: int, heard: Callable[[bytes], None] | None = None
    ) -> HttpReply:
        reply = await self._sender.send(call, gap=gap, time=time, heard=heard)
        return reply if reply.status == 200 else scrubbed(Interaction(call, reply), self._redactor).reply
