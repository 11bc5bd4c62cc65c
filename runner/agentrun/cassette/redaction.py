"""What must not be on a tape, in one run: known secrets, and what the spec's `replay.redact` points at.

Rule 1  A value that is found anywhere is replaced everywhere by its placeholder.
Rule 2  A request of a replay is compared without its values, for the tape has none. A value that only the recording
        could find is learned when a request fits but for a placeholder, and is known from then on.
Rule 3  What is still found after replacing is not written.
Rule 4  A text that is shown is made of the same values in the same way as a tape: two journals of one run, recorded and
        replayed, are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from agentrun.cassette.edits import Body
from agentrun.cassette.hide import without_values
from agentrun.cassette.scrub import leftover, scrubbed, values_in
from agentrun.cassette.stand_ins import stand_ins
from agentrun.cassette.tape import Interaction
from agentrun.core.package import Redaction as Rule
from agentrun.errors import StorageError
from agentrun.redact import Redactor
from agentrun.secret import Secret
from agentrun.wire import HttpCall, HttpReply

T = TypeVar("T")
Values = list[tuple[str, Secret]]

SHORTEST = 3
"""Characters of a value that the spec points at. Known secrets have more (`redact.SHORTEST`)."""
MOST = 10_000
"""Values that are learned from a tape: each costs forms and memory, and anybody can write a file with millions."""
_NOTHING = HttpReply(0, (), b"")
_NOBODY = HttpCall("", "", (), b"")
_JSON = ("{", "[", '"')


class Redaction:
    """Finds and replaces values in one run."""

    def __init__(self, rules: Sequence[Rule] = (), redactor: Redactor = Redactor(())) -> None:  # noqa: B008  # frozen
        """`redactor`: knows the secrets of the environment."""
        self._rules = tuple(rules)
        self._patterns = tuple(rule for rule in self._rules if rule.path is None)
        self._redactor = redactor
        self._found: set[tuple[str, str]] = set()
        self._stretches: dict[str, str] = {}
        """Texts that are known only as a whole."""

    @property
    def hides(self) -> bool:
        """Whether a text could be shown otherwise than it is: a value is known by now, or looked for by a pattern."""
        return bool(self._patterns or self._stretches or self._redactor)

    def request(self, call: HttpCall) -> HttpCall:
        """A request as it would stand on a tape."""
        asked = Interaction(call, _NOTHING)
        self._learn(values_in([asked], self._rules))
        return scrubbed(asked, self._redactor).call

    def clean(self, interactions: Sequence[Interaction]) -> tuple[Interaction, ...]:
        """Interactions as they may be written. Raises `storage.failed` when something is left in them."""
        self._learn(values_in(interactions, self._rules))
        cleaned = tuple(scrubbed(each, self._redactor) for each in interactions)
        if place := leftover(cleaned, self._redactor):
            message = f"nothing was recorded: a secret is left in {place}"
            raise StorageError("storage.failed", message, fields={"path": "cassette", "place": place})
        return cleaned

    def text(self, text: str) -> str:
        """A text as it may be shown."""
        if not self.hides:
            return text
        if self._patterns:
            said = Interaction(_NOBODY, HttpReply(0, (), text.encode("utf-8", "surrogatepass")))
            self._learn(values_in([said], self._patterns))
        for raw, words in self._stretches.items():
            text = text.replace(raw, words)
        return text_without(text, self._redactor)

    def data(self, value: T) -> T:
        """Plain data as it may be shown."""
        match value:
            case str():
                return self.text(value)  # type: ignore[return-value]  # a text for a text
            case Mapping():
                return {self.text(key): self.data(item) for key, item in value.items()}  # type: ignore[return-value]  # as given
            case list() | tuple():
                return [self.data(item) for item in value]  # type: ignore[return-value]  # as given
            case int() | float() if not isinstance(value, bool):
                clean = self.text(spelled := msgspec.json.encode(value).decode())
                return value if clean == spelled else clean  # type: ignore[return-value]  # a number becomes a text
        return value

    def learn(self, recorded: HttpCall, call: HttpCall) -> bool:
        """Whether a request is the recorded one but for what its placeholders stand for. If so these are known now."""
        found = stand_ins(recorded, call)
        if found is None:
            return False
        if len(self._found) + len(self._stretches) + len(found.values) + len(found.stretches) > MOST:
            return True
        self._learn(found.values)
        self._stretches.update((raw.reveal(), words) for raw, words in found.stretches)
        return True

    def _learn(self, values: Values) -> None:
        new = [(name, value) for name, value in values if (name, value.reveal()) not in self._found]
        if new:
            self._found.update((name, value.reveal()) for name, value in new)
            self._redactor = self._redactor.with_values(new, shortest=SHORTEST)


def text_without(text: str, redactor: Redactor) -> str:
    """A text without the values, also those that are spelled with escapes. Itself, if there are none in it."""
    if "\\" not in text and not text.lstrip().startswith(_JSON):
        return redactor.text(text)
    data = text.encode("utf-8", "surrogatepass")
    clean = without_values(Body(data), redactor).data
    return text if clean == data else clean.decode("utf-8", "surrogatepass")
