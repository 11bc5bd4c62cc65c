"""Redaction does not break matching, so a redacted cassette can be replayed without the secrets.

Each run is recorded with a value in it, and replayed by one who knows of no environment. The replay succeeds, its
journal means the same, and the file has nothing of the value.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentrun.cassette.leaks import find_leaks
from agentrun.cassette.redaction import RunRedaction, redact_cassette
from agentrun.core.package import Package
from agentrun.engine.clock import StepClock
from agentrun.journal.canonical import canonical
from agentrun.redactor import Redactor
from agentrun.secret import Secret
from agentrun.testing import stub
from agentrun.wire import HttpReply

from ..core.script import rule
from ..engine.memory_worlds import PYTHON
from ..engine.recorded_runs import cassette, record_in_memory, reply_with_calls
from ..packages import package
from ..replays import replay_package
from ..scripted_service import completion

SecretList = list[tuple[str, Secret]]


def agent(*redactions: dict[str, Any], who: Any = "nobody", stream: bool = False, **changes: Any) -> Package:
    """An agent whose param stands in its instructions and in its message. It may look something up."""
    rules = [{"path": None, "pattern": None} | each for each in redactions]
    return package(
        params={"who": {"default": who}},
        instructions=["You help {{ who }}."],
        input="I am {{ who }}, again: {{ who }}!",
        tools={"look": {**PYTHON, "effect": "read", "parallel": True, "args": {"type": "object"}}},
        policy={"rules": [rule("allow", "look", id="look")]},
        model={"stream": stream},
        replay={"redact": rules},
        **changes,
    )


def streamed(text: str, size: int) -> HttpReply:
    """A model's reply in pieces of so many characters."""
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    events = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": piece}}]} for piece in pieces]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in [*events, end]) + "data: [DONE]\n\n"
    return HttpReply(200, (("content-type", "text/event-stream"),), body.encode())


def record_and_replay(
    one: Package,
    result: str,
    *replies: Any,
    known: SecretList = [],  # noqa: B006  # only read
    hidden: tuple[str, ...] = (),
    code: str | None = None,
) -> str:
    """Recorded and replayed. Gives the text of the cassette."""

    def world(clock: StepClock) -> dict[str, Any]:
        return {"executors": {"look": stub(result)}, "redactor": Redactor(known)}

    taken = record_in_memory(one, world, *replies)
    assert taken.outcome.code == code, taken.outcome
    redaction = RunRedaction(one.replay.redact, Redactor(known))
    clean = redact_cassette(redaction, taken.interactions, {}).interactions
    was = canonical(taken.records, None, redaction.text)
    with TemporaryDirectory() as folder:
        recorded_cassette = cassette(Path(folder), clean)
        text = (Path(folder) / "cassette.yaml").read_text(encoding="utf-8")
    assert find_leaks(recorded_cassette, Redactor(())) == []
    for value in hidden:
        assert value not in text
        assert json.dumps(value)[1:-1] not in text
        assert value not in was
    done = replay_package(one, recorded_cassette)
    assert done.outcome.code == code, done.outcome.fault
    assert done.canonical() == was
    return text


EMAIL = {"name": "email", "pattern": r"[\w.]+@[\w.]+"}
VALUE = "jane.doe@example.com"
KEY = "sk-proj-abcdEFGH1234567890abcdEFGH"
"""Nobody knows this value, but it has the shape of a key."""


def places(value: str) -> dict[str, tuple[Any, str, list[HttpReply]]]:
    """The param, the result of the tool and the replies of runs with a value in some place."""
    return {
        "message and instructions": (value, "seen", [completion("Hello.")]),
        "arguments": (
            "x",
            "seen",
            [reply_with_calls(("look", {"at": value, "deep": {"list": [value]}})), completion("Done.")],
        ),
        "result": ("x", f"found {value}", [reply_with_calls(("look", {})), completion("Done.")]),
        "result of JSON": (
            "x",
            json.dumps({"mail": value, value: 1}),
            [reply_with_calls(("look", {})), completion("Done.")],
        ),
        "result in JSON": ("x", json.dumps(json.dumps([value])), [reply_with_calls(("look", {})), completion("Done.")]),
        "answer": ("x", "seen", [completion(f"Write to {value}.")]),
        "everywhere": (value, value, [reply_with_calls(("look", {"at": value}), text=value), completion(value)]),
        "long result": ("x", f"{value} " * 4000, [reply_with_calls(("look", {})), completion("Done.")]),
        "result of many lines": ("x", f"{value}\n" * 2500, [reply_with_calls(("look", {})), completion("Done.")]),
    }


SECRET_PLACES = places(VALUE)


@pytest.mark.parametrize("place", SECRET_PLACES)
def test_value_redacted_by_a_pattern_is_replayed(place: str) -> None:
    who, result, replies = SECRET_PLACES[place]
    text = record_and_replay(agent(EMAIL, who=who), result, *replies, hidden=(VALUE,))
    assert "[redacted:email]" in text


@pytest.mark.parametrize("place", SECRET_PLACES)
def test_value_redacted_from_the_environment_is_replayed(place: str) -> None:
    who, result, replies = SECRET_PLACES[place]
    text = record_and_replay(agent(who=who), result, *replies, known=[("MAIL_TOKEN", Secret(VALUE))], hidden=(VALUE,))
    assert "[redacted:MAIL_TOKEN]" in text


@pytest.mark.parametrize("size", range(1, 24))
def test_value_redacted_in_a_stream_is_replayed(size: int) -> None:
    reply = streamed(f"Write to {VALUE}, or to {VALUE}.", size)
    record_and_replay(agent(EMAIL, stream=True), "seen", reply, hidden=(VALUE,))
    record_and_replay(agent(stream=True), "seen", reply, known=[("MAIL_TOKEN", Secret(VALUE))], hidden=(VALUE,))


@pytest.mark.parametrize("place", SECRET_PLACES)
def test_key_with_a_known_shape_is_redacted_and_replayed(place: str) -> None:
    who, result, replies = places(KEY)[place]
    text = record_and_replay(agent(who=who), result, *replies, hidden=(KEY,))
    assert "[redacted:openai-key]" in text


@pytest.mark.parametrize("size", [*range(1, 24), 33, 34, 35])
def test_key_with_a_known_shape_in_a_stream_is_redacted_and_replayed(size: int) -> None:
    reply = streamed(f"Your key is {KEY}, so use {KEY}.", size)
    record_and_replay(agent(stream=True), "seen", reply, hidden=(KEY,))


@pytest.mark.parametrize("words", ["Incorrect API key provided: {}.", "token: {} " + "is wrong " * 40])
def test_key_with_a_known_shape_in_an_error_is_redacted_and_replayed(words: str) -> None:
    """An error that is shortened in the journal, and one inside a stream."""
    error = {"error": {"message": words.format(KEY), "code": 401}}
    reply = HttpReply(401, (), json.dumps(error).encode())
    record_and_replay(agent(), "seen", reply, hidden=(KEY,), code="provider.fatal")
    events = f"data: {json.dumps(error)}\n\ndata: [DONE]\n\n".encode()
    reply = HttpReply(200, (("content-type", "text/event-stream"),), events)
    record_and_replay(agent(stream=True), "seen", reply, hidden=(KEY,), code="provider.fatal")


def test_value_at_a_key_that_names_a_credential_is_redacted_and_replayed() -> None:
    value, result = "8f3a-77c1-09de-b2b4", json.dumps({"next_page_token": "8f3a-77c1-09de-b2b4"})
    replies = reply_with_calls(("look", {})), reply_with_calls(("look", {"page": value})), completion(f"Up to {value}.")
    text = record_and_replay(agent(), result, *replies, hidden=(value,))
    assert "[redacted:next_page_token]" in text


def test_short_password_in_a_url_does_not_damage_other_texts() -> None:
    text = record_and_replay(
        agent(), "seen", completion("Use postgres://svc:text@db for the text."), hidden=(":text@",)
    )
    assert "postgres://svc[redacted:password-in-a-url]db for the text." in text


def test_credentials_of_the_environment_do_not_change_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value is recorded, and later a variable has it by chance."""
    monkeypatch.setenv("DB_PASS", "correct horse 9")
    monkeypatch.setenv("API_KEY_PROD", "correct horse 9")
    text = record_and_replay(agent(who="correct horse 9"), "seen", completion("Hello, correct horse 9."))
    assert "Hello, correct horse 9." in text


def test_value_found_only_in_a_later_result_is_redacted_everywhere() -> None:
    rule = {"name": "customer", "path": "customer.name"}
    result = json.dumps({"customer": {"name": "Jane Doe", "city": "Ulm"}})
    record_and_replay(
        agent(rule, who="Jane Doe"),
        result,
        reply_with_calls(("look", {})),
        completion("Done, Jane Doe."),
        hidden=("Jane Doe",),
    )


@pytest.mark.parametrize("number", [4711, 12.5, 100000000000, -42.25])
def test_redacted_number_is_replayed(number: float) -> None:
    rule = {"name": "account", "path": "account"}
    result = json.dumps({"account": number, "other": [number]})
    record_and_replay(agent(rule, who=number), result, reply_with_calls(("look", {"n": number})), completion("Done."))
    known = [("PIN_PASSWORD", Secret(str(number)))] if len(str(number)) >= 8 else []
    record_and_replay(
        agent(who=number),
        result,
        reply_with_calls(("look", {"n": number})),
        completion(f"It is {number}."),
        known=known,
    )


def test_secrets_inside_other_secrets_are_replayed() -> None:
    known = [
        ("SHORT_TOKEN", Secret("abcdefgh")),
        ("LONG_TOKEN", Secret("xx-abcdefgh-yy")),
        ("OTHER", Secret("gh-yyzzz")),
    ]
    text = "xx-abcdefgh-yy abcdefgh xx-abcdefgh-yyzzz abcdefgh-yyzzz"
    record_and_replay(
        agent(who=text),
        text,
        reply_with_calls(("look", {"at": text})),
        completion(text),
        known=known,
        hidden=("abcdefgh",),
    )


def test_overlapping_patterns_are_replayed() -> None:
    rules = ({"name": "one", "pattern": "[0-9]{4}-[0-9]{4}"}, {"name": "two", "pattern": "[a-z]+[0-9]{4}"})
    text = "abc1234-5678 1234-5678 abc1234"
    record_and_replay(
        agent(*rules, who=text),
        text,
        reply_with_calls(("look", {"at": text})),
        completion(text),
        hidden=("1234", "abc"),
    )
    record_and_replay(
        agent(*rules[::-1], who=text),
        text,
        reply_with_calls(("look", {"at": text})),
        completion(text),
        hidden=("1234", "abc"),
    )


def test_adjacent_secrets_are_replayed() -> None:
    """Nobody can tell where one ends and the next begins: they are known together."""
    known = [("A_TOKEN", Secret("Jo Ann Lee")), ("B_TOKEN", Secret("Lee Jo Ann"))]
    for text in ("Jo Ann LeeLee Jo Ann", "Jo Ann Lee Lee Jo Ann", "Lee Jo Ann Jo Ann Lee Jo Ann Lee"):
        record_and_replay(
            agent(who=text), text, reply_with_calls(("look", {"at": text})), completion(text), known=known
        )


TEXT = st.text(st.sampled_from('abAB01 _-."\\/\n\té漢🔑<&%+='), min_size=8, max_size=20).filter(
    lambda text: text == text.strip() and len(set(text)) > 3
)
SURROUNDING_TEXT = st.text(st.sampled_from("xyz 7,;:\n"), max_size=5)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.lists(TEXT, min_size=1, max_size=3, unique=True), SURROUNDING_TEXT, st.data(), st.booleans())
def test_random_secrets_in_random_places_are_replayed(
    values: list[str], around: str, data: st.DataObject, by_rule: bool
) -> None:
    def words() -> str:
        return around + data.draw(st.lists(st.sampled_from([*values, around, "word"]), max_size=4).map(around.join))

    def said() -> str:
        text = words()
        return data.draw(st.sampled_from([text, json.dumps(text), json.dumps({"a": [text]}), repr(text)]))

    size = data.draw(st.integers(0, 6))
    last = said() or "x"
    assume(last.strip())
    reply = streamed(last, size) if size else completion(last)
    rules = [{"name": f"r{n}", "pattern": f"\\Q{value}\\E"} for n, value in enumerate(values)] if by_rule else []
    known = [] if by_rule else [(f"T{n}_TOKEN", Secret(value)) for n, value in enumerate(values)]
    first = reply_with_calls(("look", {"at": words(), "n": {words(): words()}}), text=words() or None)
    record_and_replay(agent(*rules, who=words(), stream=bool(size)), said(), first, reply, known=known)


def test_check_detects_missing_placeholder_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what is learned from placeholders a value of the environment is missed."""
    monkeypatch.setattr(RunRedaction, "learn_placeholders", lambda *_: False)
    with pytest.raises(AssertionError, match=re.escape("cassette.miss")):
        record_and_replay(agent(who=VALUE), "seen", completion("x"), known=[("MAIL_TOKEN", Secret(VALUE))])
