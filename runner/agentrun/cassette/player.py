"""Finds recorded interactions: all that a replay has of the world.

Rule 1  There is no network in here to fall back to. What is not on the tape is a miss.
Rule 2  Each interaction is played once. Equal requests are answered in recorded order.
Rule 3  A request is looked for as it is, then without what is redacted, then, if the caller lets it, without its
        volatile fields. The weakest way that was needed is the tier of the replay.
Rule 4  What was not played is reported at the end: a tape that is only half used no longer fits its agent.
Rule 5  Looking up takes the same time however long the tape is. Only a miss looks around.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from agentrun.cassette.interactions import Cassette, Interaction
from agentrun.cassette.match import MATCH_TIERS, MatchKey, MatchTier, match_key, normalised_key, sent_key, spelled_key
from agentrun.cassette.miss_context import OverruledAnswer
from agentrun.cassette.miss_explanation import MissContext, describe_call, explain_miss
from agentrun.cassette.redaction import RunRedaction
from agentrun.errors import CassetteError
from agentrun.wire import HttpCall

KeyIndex: TypeAlias = dict[MatchKey, deque[int]]


class Player:
    """Plays one cassette in one run."""

    def __init__(
        self,
        cassette: Cassette,
        *,
        volatile: Sequence[str] = (),
        redaction: RunRedaction | None = None,
        require: MatchTier = "normalised",
        here: Callable[[], MissContext | None] = lambda: None,
    ) -> None:
        """`require`: the weakest match that counts. `here`: what can be said about a miss."""
        self.cassette = cassette
        self.tier: MatchTier = "exact"
        """The weakest match so far."""
        self._interactions = cassette.interactions
        self._volatile = tuple(volatile) if require == "normalised" else ()
        self.redaction = redaction or RunRedaction()
        self._here = here
        self._played: set[int] = set()
        self._spellings = _index(cassette.keys or self._keys(spelled_key))
        self._indexes: dict[str, KeyIndex] = {}
        self.overruled: OverruledAnswer | None = None
        """The last recorded answer that did not count."""
        self._put_back: KeyIndex = {}
        """What was looked at and not played, by the request that it answers."""

    def find(self, call: HttpCall, path: str = "") -> tuple[int, Interaction] | None:
        """The interaction that answers a request, with its number from 1. It is not played again."""
        index = self._take(self._put_back, sent_key(call, path)) if self._put_back else None
        if index is None:
            index = self._take(self._spellings, sent_key(call, path))
        if index is None:
            index = self._find_inexact(call, path)
        return None if index is None else (index + 1, self._interactions[index])

    def peek(self, call: HttpCall, path: str = "") -> Interaction | None:
        """The interaction that answers a request. It can still be played."""
        found = self.find(call, path)
        if found is None:
            return None
        self._played.discard(found[0] - 1)
        self._put_back.setdefault(sent_key(call, path), deque()).appendleft(found[0] - 1)
        return found[1]

    def play(self, call: HttpCall, path: str = "") -> Interaction:
        """The same, or `cassette.miss`."""
        found = self.find(call, path)
        if found is None:
            raise self.miss(call, path)
        return found[1]

    def play_next(self, url: str, path: str = "") -> tuple[int, Interaction] | None:
        """The next interaction with this address, whatever else was asked there. It is not played again."""
        for index, each in enumerate(self._interactions):
            if index not in self._played and (each.path, each.call.url) == (path, url):
                self._played.add(index)
                return index + 1, each
        return None

    def skip(self, number: int) -> None:
        """Never play this interaction."""
        self._played.add(number - 1)

    def unused(self) -> tuple[int, ...]:
        """The numbers, from 1, of the interactions that were not played."""
        return tuple(number for number in range(1, len(self._interactions) + 1) if number - 1 not in self._played)

    def miss(self, call: HttpCall, path: str = "") -> CassetteError:
        """The error for a request that is not on the tape, with all that can be said about why."""
        call = self.redaction.redact_request(call)
        left = [(number, self._interactions[number - 1]) for number in self.unused()]
        mine = [(number, each) for number, each in left if each.path == path]
        was_there = any(each.path == path and match_key(each.call) == match_key(call) for each in self._interactions)
        said = explain_miss(
            call,
            mine,
            self.cassette.metadata,
            self._here(),
            path=path,
            played=was_there,
            empty=not self._interactions,
            overruled=self.overruled,
        )
        fields = {"turn": None, **said.fields(), "story": said.lines(), **({"path": path} if path else {})}
        hint = said.record_command if self.overruled is None else self.overruled.fix or said.record_command
        return CassetteError("cassette.miss", said.message(), hint=hint, fields=fields)

    def _find_inexact(self, call: HttpCall, path: str) -> int | None:
        """The slower ways, for recordings that others made or that hold placeholders."""
        index = self._take(self._lazy_index("numbers", match_key), match_key(call, path))
        if index is None:
            clean = self.redaction.redact_request(call)
            index = (
                None if clean is call else self._take(self._lazy_index("numbers", match_key), match_key(clean, path))
            )
            index = self._find_with_placeholders(clean, path) if index is None else index
            index = self._find_with_placeholders(call, path) if index is None and clean is not call else index
        if index is None and self._volatile:
            index = self._take(self._lazy_index("volatile", self._normalised_key), self._normalised_key(call, path))
            if index is not None:
                self.tier = MATCH_TIERS[-1]
        return index

    def _normalised_key(self, call: HttpCall, path: str) -> MatchKey:
        return normalised_key(self.redaction.redact_request(call), path, self._volatile)

    def _find_with_placeholders(self, call: HttpCall, path: str) -> int | None:
        """The first interaction that is the same but for values that its placeholders stand for."""
        for index, interaction in enumerate(self._interactions):
            if (
                index not in self._played
                and interaction.path == path
                and self.redaction.learn_placeholders(interaction.call, call)
            ):
                self._played.add(index)
                return index
        return None

    def _take(self, among: KeyIndex, key: MatchKey) -> int | None:
        waiting = among.get(key)
        while waiting:
            index = waiting.popleft()
            if index not in self._played:
                self._played.add(index)
                return index
        return None

    def _lazy_index(self, name: str, key: Callable[[HttpCall, str], MatchKey]) -> KeyIndex:
        if name not in self._indexes:
            self._indexes[name] = _index(self._keys(key))
        return self._indexes[name]

    def _keys(self, key: Callable[[HttpCall, str], MatchKey]) -> Iterator[MatchKey]:
        return (key(each.call, each.path) for each in self._interactions)


def _index(keys: Iterable[MatchKey]) -> KeyIndex:
    index: KeyIndex = {}
    for place, key in enumerate(keys):
        index.setdefault(key, deque()).append(place)
    return index


def unused_error(numbers: Iterable[int], interactions: tuple[Interaction, ...]) -> CassetteError:
    """The error for interactions that nobody asked for."""
    unused = list(numbers)
    first = interactions[unused[0] - 1]
    more = f", and {len(unused) - 1} more" if len(unused) > 1 else ""
    return CassetteError(
        "cassette.unused",
        f"{len(unused)} of {len(interactions)} recorded interactions were not played: "
        f"the {describe_call(first.call)}{more}",
        hint="record the cassette again if the run is meant to be shorter",
        fields={"unused": unused, "nearest": unused[0], "line": first.line},
    )


# --- plays a cassette for a run that goes another way than the recorded one -----------------------------------


SIDE_SCHEMES = ("hook://", "sink://")
"""Those who stand beside a run: they are asked in other words when it goes another way."""


class LenientPlayer(Player):
    """For trying what an agent does when something goes wrong. Never for judging whether a recording fits."""

    def find(self, call: HttpCall, path: str = "") -> tuple[int, Interaction] | None:
        return super().find(call, path) or (self.play_next(call.url, path) if _may_diverge(call) else None)


class FaultInjectionPlayer(Player):
    """For a case with faults: strict until one has struck that a model may read about."""

    is_faulted: Callable[[], bool] = staticmethod(lambda: False)
    """Whether one has."""
    has_diverged = False
    """Whether a reply was played to a request that is not the recorded one."""

    def find(self, call: HttpCall, path: str = "") -> tuple[int, Interaction] | None:
        found = super().find(call, path)
        if found is None and self.is_faulted() and _may_diverge(call):
            found = self.play_next(call.url, path)
            self.has_diverged = self.has_diverged or found is not None
        return found


def _may_diverge(call: HttpCall) -> bool:
    """Whether it is a model's, a hook's or a sink's."""
    return call.reach is None and (call.method != "CALL" or call.url.startswith(SIDE_SCHEMES))
