"""Find the recorded interaction that answers a request.

Rule 1  There is no fallback to the network. A request that is not on the cassette is a miss.
Rule 2  Each interaction is played once. Equal requests get their replies in recorded order.
Rule 3  A request is looked up unchanged, then with redacted values, then, if the caller allows it, without its volatile
        fields. The least exact lookup that was needed is the tier of the replay. The request of an HTTP tool is then
        looked up without the defaults that were filled in.
Rule 4  Interactions that were not played are reported at the end, because the cassette no longer matches its agent.
Rule 5  A lookup takes constant time. Only a miss searches the cassette.
Rule 6  Fault injection makes a run differ from the recorded one. Then a model request that is not on the cassette gets
        the next recorded reply of the same run and endpoint. The same is true for hooks and sinks. All other requests
        that are not on the cassette are still a miss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from typing import TypeAlias

from agentrun.cassette.interactions import BodyHashes, Cassette, Interaction
from agentrun.cassette.json_body import JsonBody
from agentrun.cassette.match import TIER_KEYS, MatchKey, match_key, sent_key
from agentrun.cassette.match_tiers import DEFAULT_TIER, MATCH_TIERS, MatchTier
from agentrun.cassette.miss_context import MissContext, OverruledAnswer
from agentrun.cassette.miss_explanation import describe_call, explain_miss
from agentrun.cassette.redaction import RunRedaction
from agentrun.errors import CassetteError
from agentrun.wire import HttpCall

KeyIndex: TypeAlias = dict[MatchKey, deque[int]]
SIDE_SCHEMES = ("hook://", "sink://")
"""Requests to these contain data of the run, so they change when the run changes."""


class Player:
    def __init__(
        self,
        cassette: Cassette,
        *,
        volatile: Sequence[str] = (),
        redaction: RunRedaction | None = None,
        require: MatchTier = DEFAULT_TIER,
        context: Callable[[], MissContext | None] = lambda: None,
    ) -> None:
        """`require`: the least exact tier that is accepted. `context`: called to explain a miss."""
        self.cassette = cassette
        self.tier: MatchTier = "exact"
        """The least exact match so far."""
        self._interactions = cassette.interactions
        self._volatile = tuple(volatile)
        self._require = require
        self.redaction = redaction or RunRedaction()
        self._context = context
        self._played: set[int] = set()
        self._waiting: dict[tuple[str, str, str], deque[int]] = {}
        """The interactions of each run and endpoint, in their order. Played ones are removed later."""
        for index, each in enumerate(self._interactions):
            self._waiting.setdefault((each.path, each.request.method.upper(), each.request.url), deque()).append(index)
        self._indexes: dict[str, KeyIndex] = {}
        self.overruled: OverruledAnswer | None = None
        """The last recorded answer that was not used."""
        self._put_back: KeyIndex = {}
        """Interactions that `peek` returned, by the request that they answer."""
        self._model_addresses: dict[str, set[str]] = {}
        """The addresses of the model requests so far, by path."""

    def find(self, call: HttpCall, path: str = "") -> tuple[int, Interaction] | None:
        """The interaction that answers a request, with its number from 1. Marks it as played."""
        if _is_model_request(call):
            self._model_addresses.setdefault(path, set()).add(call.url)
        index = self._take(self._put_back, sent_key(call, path)) if self._put_back else None
        if index is None:
            index = self._find_sent(call, path)
        if index is None:
            index = self._find_inexact(call, path)
        if index is None and call.without_defaults is not None:
            return Player.find(self, call.without_defaults, path)
        return None if index is None else (index + 1, self._interactions[index])

    def peek(self, call: HttpCall, path: str = "") -> Interaction | None:
        """The interaction that answers a request. Does not mark it as played."""
        index = self._peek(call, path)
        return None if index is None else self._interactions[index]

    def has_repeat(self, call: HttpCall, path: str = "") -> bool:
        """Whether a request of a tool was recorded again before the next model request of its run."""
        addresses = self._model_addresses.get(path)
        if not addresses:
            return False  # the model is not replayed, so the turns of the cassette are not known
        tier, index = self.tier, self._peek(call, path)
        unused = (number - 1 for number in self.unused() if self._interactions[number - 1].path == path)
        next_turn = next(
            (at for at in unused if self._interactions[at].request.url in addresses), len(self._interactions)
        )
        if index is None or index > next_turn:
            self.tier = tier
            return False
        return True

    def _peek(self, call: HttpCall, path: str) -> int | None:
        found = self.find(call, path)
        if found is None:
            return None
        index = found[0] - 1
        self._played.discard(index)
        self._put_back.setdefault(sent_key(call, path), deque()).appendleft(index)
        return index

    def play(self, call: HttpCall, path: str = "") -> Interaction:
        """Like `find`, but raises `cassette.miss`."""
        found = self.find(call, path)
        if found is None:
            raise self.miss(call, path)
        return found[1]

    def play_next(self, url: str, path: str = "") -> tuple[int, Interaction] | None:
        """The next unplayed interaction with this address, for any request body. Marks it as played."""
        for index, each in enumerate(self._interactions):
            if index not in self._played and (each.path, each.request.url) == (path, url):
                self._played.add(index)
                return index + 1, each
        return None

    def skip(self, number: int) -> None:
        self._played.add(number - 1)

    def unused(self) -> tuple[int, ...]:
        """The numbers, from 1, of the interactions that were not played."""
        return tuple(number for number in range(1, len(self._interactions) + 1) if number - 1 not in self._played)

    def miss(self, call: HttpCall, path: str = "") -> CassetteError:
        call = self.redaction.redact_request(call)
        left = [(number, self._interactions[number - 1]) for number in self.unused()]
        mine = [(number, each) for number, each in left if each.path == path]
        every, metadata = self._interactions, self.cassette.metadata
        played = _with_digest(match_key(call, path)) in self._number_index()
        explanation = explain_miss(
            call, mine, metadata, self._context(), path=path, played=played, empty=not every, overruled=self.overruled
        )
        hint = (self.overruled and self.overruled.fix) or explanation.record_command
        fields = {"turn": None, **explanation.fields(), "explanation": explanation.lines()}
        fields |= {"path": path} if path else {}
        return CassetteError("cassette.miss", explanation.message(), hint=hint, fields=fields)

    def _find_sent(self, call: HttpCall, path: str) -> int | None:
        """The next interaction of the endpoint if it is equal, as in most runs. Otherwise the first equal one."""
        waiting = self._waiting.get((path, call.method.upper(), call.url))
        while waiting and waiting[0] in self._played:
            waiting.popleft()
        if not waiting:
            return None
        if self._interactions[waiting[0]].compact_body() != call.body:
            if "sent" not in self._indexes:
                self._indexes["sent"] = _index(map(_sent_digest, self._interactions))
            return self._take(self._indexes["sent"], _with_digest(sent_key(call, path)))
        self._played.add(waiting[0])
        return waiting.popleft()

    def _find_inexact(self, call: HttpCall, path: str) -> int | None:
        numbers = self._number_index()
        index = self._take(numbers, _with_digest(match_key(call, path)))
        if index is None:
            clean = self.redaction.redact_request(call)
            index = None if clean is call else self._take(numbers, _with_digest(match_key(clean, path)))
            index = self._find_with_placeholders(clean, path) if index is None else index
            index = self._find_with_placeholders(call, path) if index is None and clean is not call else index
        return self._find_in_tiers(call, path) if index is None else index

    def _number_index(self) -> KeyIndex:
        """Also finds requests with other notations of numbers. Played interactions stay in it."""
        if "numbers" not in self._indexes:
            hashes = BodyHashes()
            keys = (_key_with(each, hashes.of(each.request)) for each in self._interactions)
            self._indexes["numbers"] = _index(keys)
        return self._indexes["numbers"]

    def _find_in_tiers(self, call: HttpCall, path: str) -> int | None:
        if not (self._volatile or self.redaction.rules or self.redaction.redactor):
            return None  # no tier finds more
        for tier in MATCH_TIERS[1 : MATCH_TIERS.index(self._require) + 1]:
            key = partial(self._tier_key, tier)
            index = self._take(self._lazy_index(tier, key), _with_digest(key(call, path)))
            if index is not None:
                self.tier = max(self.tier, tier, key=MATCH_TIERS.index)
                return index
        return None

    def _tier_key(self, tier: MatchTier, call: HttpCall, path: str) -> MatchKey:
        return TIER_KEYS[tier](self.redaction.redact_request(call), path, self._volatile)

    def _find_with_placeholders(self, call: HttpCall, path: str) -> int | None:
        """The first interaction that is equal except for the values behind its placeholders."""
        sent = JsonBody.parse(call.body)
        for index, each in enumerate(self._interactions):
            is_candidate = index not in self._played and each.path == path and each.may_equal(sent)
            if is_candidate and self.redaction.learn_placeholders(each.call, call):
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
            self._indexes[name] = _index(_with_digest(key(each.call, each.path)) for each in self._interactions)
        return self._indexes[name]


def _with_digest(key: MatchKey) -> MatchKey:
    """The key with a hash of its body, which may be large."""
    return *key[:3], sha256(key[3]).digest()


def _sent_digest(interaction: Interaction) -> MatchKey:
    return _key_with(interaction, interaction.body_digest())


def _key_with(interaction: Interaction, digest: bytes) -> MatchKey:
    request = interaction.request
    return interaction.path, request.method.upper(), request.url, digest


def _index(keys: Iterable[MatchKey]) -> KeyIndex:
    index: KeyIndex = {}
    for place, key in enumerate(keys):
        index.setdefault(key, deque()).append(place)
    return index


def unused_error(numbers: Iterable[int], interactions: tuple[Interaction, ...]) -> CassetteError:
    unused = list(numbers)
    first = interactions[unused[0] - 1]
    more = f", and {len(unused) - 1} more" if len(unused) > 1 else ""
    return CassetteError(
        "cassette.unused",
        f"{len(unused)} of {len(interactions)} recorded interactions were not played: "
        f"the {describe_call(first.call)}{more}",
        hint="if the run should be shorter now, record the cassette again",
        fields={"unused": unused, "nearest": unused[0], "line": first.line},
    )


class LenientPlayer(Player):
    """For a sweep, which injects faults. Never used to check whether a cassette matches."""

    def find(self, call: HttpCall, path: str = "") -> tuple[int, Interaction] | None:
        return super().find(call, path) or (self.play_next(call.url, path) if _may_diverge(call) else None)


class FaultInjectionPlayer(Player):
    """For a case with faults: strict until a fault was injected that a model can read about."""

    is_faulted: Callable[[], bool] = staticmethod(lambda: False)
    has_diverged = False
    """Whether a reply was played to a request that differs from the recorded one."""

    def find(self, call: HttpCall, path: str = "") -> tuple[int, Interaction] | None:
        found = super().find(call, path)
        if found is None and self.is_faulted() and _may_diverge(call):
            found = self.play_next(call.url, path)
            self.has_diverged = self.has_diverged or found is not None
        return found


def _is_model_request(call: HttpCall) -> bool:
    """Only for requests of a run: what is recorded of a tool's request does not have its `reach`."""
    return call.reach is None and call.method != "CALL"


def _may_diverge(call: HttpCall) -> bool:
    return _is_model_request(call) or call.url.startswith(SIDE_SCHEMES)
