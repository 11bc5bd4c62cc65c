"""The ids of effects. They are built and parsed only in this file.

    m3.2              the second request of turn 3, for the next step of the run
    k3.1              the first request of turn 3, for a summary
    c3.0              the first call in the reply of turn 3
    h.limits.c3.0.3   the hook `limits`, asked about the call c3.0 in turn 3
    deliver:mail      the delivery to the sink `mail`

Rule 1  An id contains the position in the run, so a replay and a resume make the same ids.
Rule 2  `parse_effect_id(str(id)) == id`, for every id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Purpose: TypeAlias = Literal["answer", "compact"]
"""Why a model is asked: for the next step of the run, or for a summary of the conversation."""

CALL_PATTERN = r"c[0-9]{1,9}\.[0-9]{1,9}"
_SUBJECTS = ("input", "request", "reply", "output", "stop")
_DELIVERY = "deliver:"
_LETTERS: Mapping[Purpose, str] = {"answer": "m", "compact": "k"}
_PURPOSES: Mapping[str, Purpose] = {letter: purpose for purpose, letter in _LETTERS.items()}


class RequestId(Struct, frozen=True):
    purpose: Purpose
    turn: int
    attempt: int

    def __str__(self) -> str:
        return f"{_LETTERS[self.purpose]}{self.turn}.{self.attempt}"


class CallId(Struct, frozen=True):
    turn: int
    index: int

    def __str__(self) -> str:
        return f"c{self.turn}.{self.index}"


class HookId(Struct, frozen=True):
    hook: str
    subject: str
    turn: int

    def __str__(self) -> str:
        return f"h.{self.hook}.{self.subject}.{self.turn}"


class DeliveryId(Struct, frozen=True):
    sink: str

    def __str__(self) -> str:
        return f"{_DELIVERY}{self.sink}"


EffectId: TypeAlias = RequestId | CallId | HookId | DeliveryId


def parse_effect_id(text: str) -> EffectId | None:
    if text.startswith(_DELIVERY):
        return DeliveryId(text.removeprefix(_DELIVERY))
    place, _, number = text.rpartition(".")
    if not _is_number(number):
        return None
    if place.startswith("h."):
        return _parse_hook_id(place.removeprefix("h."), int(number))
    kind, turn = place[:1], place[1:]
    if not _is_number(turn):
        return None
    if kind == "c":
        return CallId(int(turn), int(number))
    return RequestId(_PURPOSES[kind], int(turn), int(number)) if kind in _PURPOSES else None


def _parse_hook_id(text: str, turn: int) -> HookId | None:
    """The name of a hook may contain dots, so the subject is parsed from the end."""
    hook, _, subject = text.rpartition(".")
    if _is_number(subject):
        hook, _, call = hook.rpartition(".")
        subject = f"{call}.{subject}"
    is_subject = subject in _SUBJECTS or isinstance(parse_effect_id(subject), CallId)
    return HookId(hook, subject, turn) if hook and is_subject else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
