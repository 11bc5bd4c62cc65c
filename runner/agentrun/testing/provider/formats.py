"""The wire formats, and which one a request is in."""

from __future__ import annotations

import re
from typing import Any, Protocol

from agentrun.testing.provider.asked import Asked
from agentrun.testing.provider.chat import Chat
from agentrun.testing.provider.gemini import Gemini
from agentrun.testing.provider.messages import Messages
from agentrun.testing.provider.responses import Responses
from agentrun.testing.provider.said import Said


class Format(Protocol):
    """One provider's language, spoken by the server's side. It has no state."""

    @property
    def name(self) -> str:
        """The provider's name in a spec."""

    @property
    def takes_thoughts(self) -> bool:
        """Whether what the model thought can be sent back."""

    def read(self, path: str, body: bytes) -> Asked:
        """A request. Raises BadRequest."""

    def whole(self, said: Said, asked: Asked) -> dict[str, Any]:
        """A reply in one piece. Raises CannotSay."""

    def events(self, said: Said, asked: Asked) -> list[bytes]:
        """A reply as the events of a stream; the last one says that it is over. Raises CannotSay."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body of a reply that is none."""


FORMATS: tuple[tuple[str, Format], ...] = (
    (r"/chat/completions$", Chat()),
    (r"/responses$", Responses()),
    (r"/messages$", Messages()),
    (r"/models/[^/]+:(generateContent|streamGenerateContent)$", Gemini()),
)
"""By the end of the address, whatever stands before it."""


def format_of(path: str) -> Format | None:
    plain = path.partition("?")[0]
    return next((format for pattern, format in FORMATS if re.search(pattern, plain)), None)
