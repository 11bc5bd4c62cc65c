"""Packed requests: whatever was sent comes back byte by byte, and damage is found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import vcr
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentrun.canonical_json import pretty_json, sorted_json, text_hash
from agentrun.cassette.conversion import converted_text
from agentrun.cassette.file import load_cassette, parse_cassette_text
from agentrun.cassette.interactions import BodyHashes, Cassette, Interaction, PackedCall
from agentrun.cassette.json_body import LARGE_TEXT, SharedList
from agentrun.cassette.leaks import find_leaks
from agentrun.cassette.packing import MAX_EXPANDED_BODY
from agentrun.cassette.parsed_interaction import model_names, parse_cassette
from agentrun.cassette.parsed_request import RequestParser, parse_request
from agentrun.cassette.player import Player
from agentrun.cassette.writer import CassetteSerializer, dump_cassette
from agentrun.cassette.yaml_loader import CassetteFormatError
from agentrun.errors import CassetteError
from agentrun.redactor import Redactor
from agentrun.report.cassette_diff import compare_cassettes
from agentrun.vcr import register
from agentrun.wire import HttpCall, HttpReply

from ..long_loops import times
from ..steps import at_most

VCR: Any = vcr  # it has no types

OPENAI, RESPONSES = "https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1/responses"
ANTHROPIC = "https://api.anthropic.com/v1/messages"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/g:generateContent"
TOOLS = [{"name": name, "parameters": {"type": "object", "properties": {"id": {"type": "string"}}}} for name in "abc"]
LONG = "A long text that a tool returned. " * 60


def interaction(body: Any, url: str = OPENAI, path: str = "", reply: str = "ok") -> Interaction:
    call = HttpCall("POST", url, (("content-type", "application/json"),), pretty_json(body).encode())
    return Interaction(call, HttpReply(200, (("content-type", "text/plain"),), reply.encode()), path=path)


def check_round_trip(interactions: list[Interaction]) -> str:
    """The packed text, after it was read in every way."""
    packed, whole = dump_cassette(interactions, {"a": 1}), dump_cassette(interactions, {"a": 1}, packed=False)
    read = parse_cassette_text(packed)
    for before, after in zip(interactions, read.interactions, strict=True):
        assert after.call == before.call
        assert after.compact_body() == sorted_json(json.loads(before.call.body))
        assert after.body_digest() == before.body_digest()
        assert (after.reply, after.path) == (before.reply, before.path)
    parser, hashes, plain = RequestParser(), BodyHashes(), BodyHashes()
    for before, after in zip(interactions, read.interactions, strict=True):
        assert parser.parse(after) == parse_request(before.call)
        assert hashes.of(after.request) == plain.of(before.call)
    assert converted_text(packed, packed=False) == whole
    assert converted_text(whole, packed=True) == packed == converted_text(packed, packed=True)
    assert read.hash == parse_cassette_text(whole).hash
    return packed


# --- random conversations ---------------------------------------------------------------------------------------


class Agent:
    """The requests of one run, which change as those of a real one do."""

    def __init__(self, data: st.DataObject, path: str) -> None:
        self._draw = data.draw
        self.path = path
        self.messages: list[Any] = ["Look it up."]
        self.tools: list[Any] = list(TOOLS)
        self.settings: dict[str, Any] = {"temperature": 0.0}
        self.format = 0

    def request(self) -> tuple[str, dict[str, Any]]:
        said = [{"role": "user" if n % 2 else "assistant", "content": text} for n, text in enumerate(self.messages)]
        system = "You help customers of a shop with their orders. " * 3
        match self.format:
            case 0:
                messages = [{"role": "system", "content": system}, *said]
                return OPENAI, {"model": "m", "messages": messages, "tools": self.tools, **self.settings}
            case 1:
                return RESPONSES, {"model": "m", "instructions": system, "input": said, "tools": self.tools}
            case 2:
                return ANTHROPIC, {"model": "c", "max_tokens": 9, "system": system, "messages": said, **self.settings}
        contents = [{"parts": [{"text": each["content"]}]} for each in said]
        return GEMINI, {"contents": contents, "systemInstruction": system, "generationConfig": self.settings}

    def change(self) -> None:
        change = self._draw(st.sampled_from(["say", "say", "retry", "edit", "compact", "fallback", "tool", "setting"]))
        text = self._draw(st.sampled_from(["Yes.", "ä\u2028 \ud7ff", LONG, '{"keep": "messages 1"}', '"quoted"', ""]))
        place = self._draw(st.integers(0, len(self.messages) - 1))
        match change:
            case "say":
                self.messages += [text, self._draw(st.text(max_size=5))]
            case "edit":
                self.messages[place] = "[removed]"
            case "compact":
                self.messages[:place] = ["A summary."]
            case "fallback":
                self.format = self._draw(st.integers(0, 3))
            case "tool":
                self.tools[place % 3] = {**TOOLS[place % 3], "description": text}
            case "setting":
                self.settings = self._draw(st.sampled_from([{}, {"temperature": 1.0}, {"top_p": 1, "stop": ["x"]}]))


@given(st.data())
def test_random_conversations_are_the_same_after_packing(data: st.DataObject) -> None:
    """Edits in the middle of the history, compaction, other providers, sub-agents, parallel calls and retries."""
    agents = [Agent(data, path) for path in ("", "c1.0", "c1.1")]
    interactions = []
    for _ in range(data.draw(st.integers(2, 12))):
        agent = data.draw(st.sampled_from(agents))
        agent.change()
        url, body = agent.request()
        reply = data.draw(st.sampled_from(["ok", LONG, json.dumps({"content": LONG})]))
        interactions.append(interaction(body, url, agent.path, reply))
        if data.draw(st.booleans()):
            interactions += [interaction({"id": n}, "tool://look", agent.path, LONG) for n in range(2)]
    check_round_trip(interactions)


def test_requests_that_continue_the_same_one_are_read_apart() -> None:
    """Sub-agents that share their beginning, with other calls under the same id, and with another tool."""
    first = [{"role": "system", "content": "You help. " * 30}, {"role": "user", "content": "Go."}]
    bodies = []
    for more in range(3):
        for name in ("look", "pay"):
            call = {"id": "call_1", "function": {"name": name, "arguments": "{}"}}
            messages = [*first, {"role": "assistant", "tool_calls": [call] * more}]
            messages += [{"role": "tool", "tool_call_id": "call_1", "content": f"{name} {n}"} for n in range(more)]
            tools = [*TOOLS, {"name": name}] if more == 2 else TOOLS
            bodies.append({"model": "m", "messages": messages if more else first, "tools": tools})
    packed = check_round_trip([interaction(body) for body in bodies])
    read = parse_cassette_text(packed)
    found = parse_cassette(read).interactions[-1].exchange
    assert found is not None
    assert ([part.name for part in found.request.messages[-1].parts], "pay" in found.request.tools) == (
        ["pay"] * 2,
        True,
    )


KEYS = st.sampled_from(
    ["keep", "same_as_interaction", "except", "without", "sha256", "same_text_as_in_interaction", "a"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["a 1", "a 1 to 2", "keep 1", LONG, "x" * 300]) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(st.dictionaries(KEYS, JSON, max_size=4) | JSON, min_size=1, max_size=6), st.booleans())
def test_any_json_is_the_same_after_packing(bodies: list[Any], repeated: bool) -> None:
    """Also bodies that look like packed ones."""
    padding = {"padding": "y" * 300}
    bodies = [{**body, **padding} if isinstance(body, dict) else body for body in bodies]
    check_round_trip([interaction(body, reply=LONG) for body in (bodies * 2 if repeated else bodies)])


def test_body_that_is_not_json_is_written_as_it_is() -> None:
    call = HttpCall("POST", OPENAI, (), b"a=1&b=2" * 100)
    binary = HttpCall("POST", OPENAI, (), bytes(range(256)) * 4)
    reply = HttpReply(200, (), b"ok")
    read = parse_cassette_text(dump_cassette([Interaction(each, reply) for each in (call, call, binary, binary)], {}))
    assert [each.call for each in read.interactions] == [call, call, binary, binary]


# --- what a file looks like -------------------------------------------------------------------------------------


def conversation(
    turns: int, text: str = "Some words that a tool returned.", prompt: str = "You help. "
) -> list[Interaction]:
    messages: list[Any] = [{"role": "system", "content": prompt * 20}, {"role": "user", "content": "Go."}]
    interactions = []
    for turn in range(turns):
        interactions.append(interaction({"model": "m", "messages": list(messages), "tools": TOOLS}))
        interactions.append(interaction({"id": turn}, "tool://look", reply=text))
        messages += [{"role": "assistant", "content": f"Turn {turn}."}, {"role": "tool", "content": text}]
    return interactions


def bodies(text: str) -> list[Any]:
    return [json.loads(each["request"]["body"]) for each in yaml.safe_load(text)["interactions"]]


def test_sha256_of_whole_request_shows_what_is_new() -> None:
    packed = bodies(check_round_trip(conversation(3)))
    new = [{"content": "Turn 1.", "role": "assistant"}, {"content": "Some words that a tool returned.", "role": "tool"}]
    assert packed[4] == {"same_as_interaction": 3, "except": {"messages": [{"keep": "messages 1 to 4"}, *new]}}
    assert packed[3] == {"id": 1}, "a short body is written whole"


def test_changed_and_removed_fields_are_shown() -> None:
    said = [f"Message {n} of a conversation" for n in range(1, 101)]
    first = {"model": "m", "messages": said, "tools": TOOLS, "temperature": 0}
    second = {"model": "n", "messages": [*said[:50], "cut", *said[60:]], "temperature": 0, "top_p": 1}
    masked = [*said[:50], "cut", *said[60:70], "masked", *said[71:80], "masked", *said[81:], "new"]
    _, packed, again = bodies(
        check_round_trip([interaction(each) for each in (first, second, {**second, "messages": masked})])
    )
    messages: list[Any] = [{"keep": "messages 1 to 50"}, "cut", {"keep": "messages 61 to 100"}]
    changes = {"messages": messages, "model": "n", "top_p": 1}
    assert packed == {"same_as_interaction": 1, "except": changes, "without": ["tools"]}
    kept = [{"keep": f"messages {each}"} for each in ("1 to 61", "63 to 71", "73 to 91")]
    messages = [kept[0], "masked", kept[1], "masked", kept[2], "new"]
    assert again == {"same_as_interaction": 2, "except": {"messages": messages}}


def test_retry_shows_that_nothing_is_new() -> None:
    once = conversation(2)[2]
    assert bodies(check_round_trip([*conversation(1), once, once]))[3] == {"same_as_interaction": 3}


def test_packing_has_no_effect_on_short_bodies() -> None:
    same = [interaction({"id": "1042"}, "tool://look") for _ in range(3)]
    assert "sha256_of_whole_request" not in check_round_trip(same)


def test_size_of_a_file_grows_with_the_run() -> None:
    sizes = [len(dump_cassette(conversation(turns), {})) for turns in (20, 40, 80)]
    assert (sizes[2] - sizes[1]) / (sizes[1] - sizes[0]) < 2.2
    assert sizes[2] < len(dump_cassette(conversation(80), {}, packed=False)) / 8


def test_each_message_is_in_memory_once() -> None:
    read = parse_cassette_text(dump_cassette(conversation(30), {}))
    lists = [each.request.json.fields["messages"] for each in read.interactions if isinstance(each.request, PackedCall)]
    assert len(lists) == 29
    items = [each._items for each in lists if isinstance(each, SharedList)]
    assert all(each is items[0] for each in items)


def miss(cassette: Cassette) -> None:
    body = {"model": "other", "messages": [{"role": "user", "content": str(n)} for n in range(40)], "tools": TOOLS}
    Player(cassette).miss(interaction(body).call)


@cache
def packed_conversation(turns: int, prompt: str) -> Cassette:
    return parse_cassette_text(dump_cassette(conversation(turns, prompt=prompt), {}))


READERS: dict[str, Callable[[Cassette, Cassette], object]] = {
    "show": lambda cassette, _: parse_cassette(cassette),
    "list": lambda cassette, _: model_names(cassette),
    "audit": lambda cassette, _: find_leaks(cassette, Redactor([])),
    "miss": lambda cassette, _: miss(cassette),
    "diff": lambda cassette, other: compare_cassettes(parse_cassette(cassette), parse_cassette(other)),
}


@pytest.mark.parametrize("name", READERS)
def test_work_of_readers_grows_with_the_run(name: str) -> None:
    steps = []
    for turns in (20, 20, 40, 80):  # the first time something may be imported and cached
        cassettes = packed_conversation(turns, "You help. "), packed_conversation(turns, "You serve. ")
        with at_most(10_000_000) as counter:
            READERS[name](*cassettes)
        steps.append(counter.steps)
    assert (steps[3] - steps[2]) / (steps[2] - steps[1]) < 2.3


@pytest.mark.parametrize("length", [LARGE_TEXT - 1, LARGE_TEXT])
def test_large_result_is_written_once(length: int) -> None:
    text = "".join(f"{n:4}" for n in range(length))[:length]
    packed = check_round_trip(conversation(4, text))
    assert packed.count(text) == (1 if length >= LARGE_TEXT else 7)
    anchor = text_hash(text).replace(":", "-")
    assert (packed.count(f"string: &{anchor} "), packed.count(f"string: *{anchor}\n")) == (
        (1, 3) if length >= LARGE_TEXT else (0, 0)
    )
    if length >= LARGE_TEXT:
        tool = bodies(packed)[2]["except"]["messages"][-1]
        assert tool["content"] == {"same_text_as_in_interaction": 2, "sha256": text_hash(text).removeprefix("sha256:")}


def test_large_text_of_a_request_is_written_once() -> None:
    """A truncated result, which is in no reply."""
    requests = [interaction({"messages": [LONG] * n, "padding": "y" * 300}) for n in (1, 2, 3)]
    assert check_round_trip(requests).count(LONG.strip()) == 1
    nested = [interaction({"parts": [{"text": LONG}]}, reply=json.dumps({"x": [LONG]})) for _ in range(2)]
    assert check_round_trip([*nested, interaction({"other": LONG}, "tool://x")]).count(LONG.strip()) == 2


# --- vcrpy ------------------------------------------------------------------------------------------------------


def replay_with(recorder: Any, file: Path, sent: list[Interaction], **options: Any) -> list[str]:
    with recorder.use_cassette(str(file), record_mode="none", **options), httpx.Client(trust_env=False) as client:
        posts = [each.call for each in sent if each.call.url.startswith("https://")]
        return [client.post(each.url, content=each.body, headers=dict(each.headers)).text for each in posts]


def numbered(count: int) -> list[Interaction]:
    """A conversation in which each request has another reply."""
    sent = [each for each in conversation(count) if each.request.url == OPENAI]
    return [Interaction(each.request, HttpReply(200, (), f"reply {n}".encode())) for n, each in enumerate(sent)]


def test_plain_vcrpy_replays_sha256_of_whole_requests_with_its_default_matching(tmp_path: Path) -> None:
    file = tmp_path / "packed.yaml"
    file.write_text(dump_cassette(numbered(5), {}))
    assert replay_with(VCR.VCR(), file, numbered(5)) == [f"reply {n}" for n in range(5)]


def test_bodies_match_in_an_expanded_file_and_through_our_serializer(tmp_path: Path) -> None:
    packed, whole = tmp_path / "packed.yaml", tmp_path / "whole.yaml"
    packed.write_text(dump_cassette(numbered(5), {}))
    whole.write_text(converted_text(packed.read_text(), packed=False))
    backwards, replies = numbered(5)[::-1], [f"reply {n}" for n in range(5)][::-1]
    body = {"match_on": ["method", "uri", "body"]}
    assert replay_with(VCR.VCR(), whole, backwards, **body) == replies
    ours = VCR.VCR(serializer="agentrun")
    ours.register_serializer("agentrun", CassetteSerializer)
    assert replay_with(ours, packed, backwards, **body) == replies
    assert replay_with(register(VCR.VCR()), packed, backwards) == replies
    with pytest.raises(vcr.errors.CannotOverwriteExistingCassetteException):
        replay_with(VCR.VCR(), packed, backwards, **body)


def test_file_saved_by_plain_vcrpy_stays_packed_and_readable(tmp_path: Path) -> None:
    file = tmp_path / "packed.yaml"
    file.write_text(dump_cassette([*conversation(4, LONG), *numbered(2)], {"a": 1}))
    before = load_cassette(file)
    persister, serializer = VCR.persisters.filesystem.FilesystemPersister, VCR.serializers.yamlserializer
    requests, responses, metadata = persister.load_cassette(file, serializer)
    persister.save_cassette(file, {"requests": requests, "responses": responses, "metadata": metadata}, serializer)
    assert "same_as_interaction" in file.read_text()
    assert load_cassette(file).hash == before.hash
    requests, responses, _ = persister.load_cassette(file, serializer)
    persister.save_cassette(
        file, {"requests": requests, "responses": responses, "metadata": metadata}, CassetteSerializer
    )
    assert load_cassette(file).hash == before.hash, "it was not packed twice"


# --- damage -----------------------------------------------------------------------------------------------------


def without_interaction(text: str, number: int) -> str:
    head, *rest = re.split(r"^(?=- request:)", text, flags=re.MULTILINE)
    return head + "".join(each for n, each in enumerate(rest, 1) if n != number)


NO_OBJECT = re.compile(r"body: \|\n *\{\n *\"same_as.*?\n      \}", re.DOTALL)
DAMAGE: dict[str, tuple[Callable[[str], str], int, str]] = {
    "an earlier interaction was removed": (lambda text: without_interaction(text, 2), 3, "an alias without an anchor"),
    "the first interaction was removed": (lambda text: without_interaction(text, 1), 2, "does not come before it"),
    "the base was changed": (lambda text: text.replace("You help. ", "You hurt. "), 3, "was changed, moved or removed"),
    "it refers to itself": (lambda text: text.replace('on": 1,', 'on": 3,', 1), 3, "does not come before it"),
    "it refers to nothing": (lambda text: text.replace('on": 1,', 'on": 99,', 1), 3, "interaction 99, which does not"),
    "it refers to zero": (lambda text: text.replace('on": 1,', 'on": 0,', 1), 3, "does not come before it"),
    "it refers to a text": (lambda text: text.replace('on": 1,', 'on": "1",', 1), 3, "does not come before it"),
    "more is kept than there is": (lambda text: text.replace("1 to 2", "1 to 3", 1), 3, "not there or are kept"),
    "it is kept backwards": (lambda text: text.replace("1 to 2", "2 to 1", 1), 3, "not there or are kept"),
    "what is kept has no form": (lambda text: text.replace("1 to 2", "1 till 2", 1), 3, "must be like"),
    "another list is kept": (lambda text: text.replace('"messages 1 to 2', '"tools 1 to 2', 1), 3, "must be like"),
    "it has another key": (lambda text: text.replace('"except"', '"exept"', 1), 3, "a packed request has only"),
    "it is not JSON": (lambda text: text.replace('"same_as', "same_as", 1), 3, "is not JSON"),
    "it is no object": (lambda text: NO_OBJECT.sub("body: '[]'", text, count=1), 3, "JSON object"),
    "the text is missing": (lambda text: text.replace('sha256": "', 'sha256": "0', 1), 3, "interaction 2 that is not"),
    "the text is elsewhere": (lambda text: text.replace('in_interaction": 2', 'in_interaction": 1', 1), 3, "not there"),
    "the reply was changed": (lambda text: text.replace("a tool returned", "no tool returned"), 3, "not there"),
    "the digest is a number": (
        lambda text: re.sub(r"sha256_of_whole_request: .*", "sha256_of_whole_request: 7", text),
        3,
        "wrong type",
    ),
    "the digest is another": (
        lambda text: text.replace("request: sha256:", "request: sha256:0", 1),
        3,
        "not the recor",
    ),
    "the alias is another": (lambda text: re.sub(r"\*sha256-.", "*sha256-x", text), 4, "an alias without an anchor"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_reported_with_its_line(name: str, tmp_path: Path) -> None:
    damage, number, message = DAMAGE[name]
    text = dump_cassette(conversation(4, LONG), {"a": 1})
    damaged = damage(text)
    assert damaged != text
    file = tmp_path / "packed.yaml"
    file.write_text(damaged)
    starts = [line for line, each in enumerate(damaged.splitlines(), 1) if each.startswith("- request:")]
    with pytest.raises(CassetteError, match=message) as caught:
        load_cassette(file)
    assert caught.value.code == "cassette.damaged"
    assert starts[number - 1] <= caught.value.fields["line"] < (starts[number] if number < len(starts) else 10**9)
    recorder = register(VCR.VCR())
    with pytest.raises((CassetteError, yaml.YAMLError)), recorder.use_cassette(str(file), record_mode="none"):
        """It is not loaded."""


def test_removed_field_must_exist() -> None:
    texts = [pretty_json({"a": "x" * 300, "b": 1}), '{"same_as_interaction": 1, "without": ["c"]}']
    with pytest.raises(CassetteFormatError, match="'without' names a field that interaction 1 does not have"):
        parse_cassette_text(raw_cassette(texts))


def test_expanded_body_has_a_limit() -> None:
    """A few references to a large text could fill the memory."""
    text = "x" * (MAX_EXPANDED_BODY // 8)
    reference = {"same_text_as_in_interaction": 1, "sha256": text_hash(text).removeprefix("sha256:")}
    allowed, refused = ({str(n): reference for n in range(count)} for count in (7, 9))
    for body, error in ((allowed, "not the recorded one"), (refused, "more than 67108864 bytes")):
        with pytest.raises(CassetteFormatError, match=error):
            parse_cassette_text(raw_cassette([pretty_json({"a": text}), pretty_json(body)]))


def raw_cassette(texts: list[str], digests: list[str] | None = None) -> str:
    """Requests as they are written. All but the first are packed, by default with a wrong digest."""
    digests = digests or ["sha256:0" for _ in texts[1:]]
    each = []
    for text, digest in zip(texts, [None, *digests], strict=True):
        extra = {} if digest is None else {"agentrun": {"sha256_of_whole_request": digest}}
        response = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": "ok"}, **extra}
        each.append({"request": {"method": "POST", "uri": OPENAI, "headers": {}, "body": text}, "response": response})
    return yaml.dump({"version": 1, "interactions": each}, Dumper=yaml.CSafeDumper)


def digest_of(body: Any) -> str:
    return text_hash(sorted_json(body))


def test_cassette_with_references_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many requests with a few references each could fill the memory, too."""
    text = "x" * 2000
    reference = {"same_text_as_in_interaction": 1, "sha256": text_hash(text).removeprefix("sha256:")}
    bodies, whole = [{"n": n, "a": reference} for n in range(10)], [{"n": n, "a": text} for n in range(10)]
    cassette = raw_cassette([pretty_json({"a": text}), *map(pretty_json, bodies)], list(map(digest_of, whole)))
    assert len(parse_cassette_text(cassette).interactions) == 11
    monkeypatch.setattr("agentrun.cassette.packing.MAX_REPEATED_TEXT", 10 * 2000 - 1)
    with pytest.raises(CassetteFormatError, match="the references stand for more than 19999 characters"):
        parse_cassette_text(cassette)


def test_items_that_requests_repeat_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that lose their first item in every request are copied."""
    said = [f"Message {n} of a conversation" for n in range(30)]
    text = dump_cassette([interaction({"messages": said[n:]}) for n in range(10)], {})
    assert text.count('"same_as_interaction"') == 9
    assert len(parse_cassette_text(text).interactions) == 10
    monkeypatch.setattr("agentrun.cassette.packing.MAX_REPEATED_ITEMS", 9 * 20)
    with pytest.raises(CassetteFormatError, match="the requests repeat more than 180 items"):
        parse_cassette_text(text)


WRONG_TYPES = [
    {"same_as_interaction": True},
    {"same_as_interaction": 1.0},
    {"same_as_interaction": None},
    {"same_as_interaction": [1]},
    {"same_as_interaction": -1},
    {"same_as_interaction": 2**70},
    {"same_as_interaction": 1, "except": []},
    {"same_as_interaction": 1, "except": {"messages": [{"keep": None}]}},
    {"same_as_interaction": 1, "except": {"messages": [{"keep": ["messages 1"]}]}},
    {"same_as_interaction": 1, "except": {"messages": [{"keep": "messages 0"}]}},
    {"same_as_interaction": 1, "except": {"messages": [{"keep": "messages 1 to 999999999"}]}},
    {"same_as_interaction": 1, "except": {"messages": [{"keep": "messages 1 to " + "9" * 5000}]}},
    {"same_as_interaction": 1, "except": {"messages": [{"keep": "messages \u0661"}]}},
    {"same_as_interaction": 1, "except": {"messages": [{"keep": "messages 1\n"}]}},
    {"same_as_interaction": 1, "without": "messages"},
    {"same_as_interaction": 1, "without": [["messages"]]},
    {"same_as_interaction": 1, "without": [{}]},
    {"same_as_interaction": 1, "except": {"messages": 1}, "without": ["messages"]},
    {"a": {"same_text_as_in_interaction": 3, "sha256": "0"}},
    {"a": {"same_text_as_in_interaction": "1", "sha256": "0"}},
    {"a": {"same_text_as_in_interaction": 1, "sha256": 0}},
]


@pytest.mark.parametrize("body", WRONG_TYPES, ids=repr)
def test_wrong_reference_is_damage(body: Any, tmp_path: Path) -> None:
    file = tmp_path / "packed.yaml"
    file.write_text(raw_cassette([pretty_json({"messages": ["x" * 300, "y"]}), json.dumps(body)]))
    with pytest.raises(CassetteError) as caught:
        load_cassette(file)
    assert (caught.value.code, caught.value.fields["line"] > 2) == ("cassette.damaged", True)
    with pytest.raises(CassetteError), register(VCR.VCR()).use_cassette(str(file), record_mode="none"):
        """It is not loaded."""


def test_requests_that_refer_to_each_other_are_damage() -> None:
    cycle = [pretty_json({"same_as_interaction": number}) for number in (3, 2)]
    with pytest.raises(CassetteFormatError, match="interaction 3, which does not come before it"):
        parse_cassette_text(raw_cassette([pretty_json({"a": 1}), *cycle]))


def test_chain_of_references_is_read_once_each() -> None:
    """Each request refers to the one before. Nothing recurses, and none is expanded twice."""
    count = times(1_000, 10_000)
    bodies = [pretty_json({"same_as_interaction": number}) for number in range(1, count + 1)]
    first = {"messages": ["x" * 300] * 50}
    text = raw_cassette([pretty_json(first), *bodies], [digest_of(first)] * count)
    with at_most(600 * count):
        assert len(parse_cassette_text(text).interactions) == count + 1


def test_items_are_kept_at_most_once() -> None:
    """Lists that double in every request would fill the memory."""
    first = pretty_json({"messages": ["x" * 300, "y"]})
    again = {"same_as_interaction": 1, "except": {"messages": [{"keep": "messages 1 to 2"}] * 2}}
    with pytest.raises(CassetteFormatError, match="not there or are kept already"):
        parse_cassette_text(raw_cassette([first, pretty_json(again)]))


@pytest.mark.parametrize(
    "item",
    [{"keep": "messages 1 to 2"}, {"keep": 1}, {"content": {"same_text_as_in_interaction": 1, "sha256": "0"}}],
    ids=["keep", "number", "text"],
)
def test_message_that_looks_like_a_reference_is_written_whole(item: Any) -> None:
    said = ["A message of a conversation. " * 9, "Another one."]
    requests = [interaction({"messages": [*said, *more]}) for more in ([], [item], [item, "More."])]
    packed = bodies(check_round_trip(requests))
    assert ["same_as_interaction" in each for each in packed] == [False, False, True]
