"""Redaction of sensitive values of every kind in every place of an interaction."""

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from agentrun.cassette.interactions import Failure, Interaction
from agentrun.cassette.redaction import redact_interaction
from agentrun.redactor import Redactor
from agentrun.secret import Secret, placeholder
from agentrun.wire import HttpCall, HttpReply

from ..named_cases import case
from .unredacted import find_unredacted

PLACEHOLDER = placeholder("KEY")
KINDS = {
    "plain": "sk-planted-0123456789",
    "quotes": "quo\"ted'value-1",
    "backslash": "back\\slash\\n-value",
    "newline": "line one\r\nline two\tend",
    "unicode": "pässwörd-😀-geheim",
    "percent": "100%25-of-it%zz",
    "plus": "plus+and=equals&more",
    "slash": "path/to//value<b>",
    "digits": "4111111111111111",
    "brackets": "[redacted:[value]",
}
DEFAULT = Interaction(HttpCall("POST", "https://api.example/v1", (), b"{}"), HttpReply(200, (), b"{}"))


def redactor_of(value: str, shortest: int = 8) -> Redactor:
    return Redactor([("KEY", Secret(value))], shortest=shortest)


def interaction_with(
    *, url: str = DEFAULT.call.url, header: str = "", body: bytes = b"{}", reply: bytes = b"{}", failure: str = ""
) -> Interaction:
    """An interaction with something in one place, and chunks of three bytes."""
    headers = (("x-some", header),)
    return Interaction(
        HttpCall("POST", url, headers, body),
        HttpReply(200, headers, reply),
        chunks=tuple(len(reply[at : at + 3]) for at in range(0, len(reply), 3)),
        failure=Failure("tool.failed", failure, {"detail": [failure]}) if failure else None,
    )


def json_of(value: object, *, ascii_only: bool = False) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only).encode()


def escapes(value: str) -> bytes:
    """Every character as an escape, as JSON allows."""
    units = value.encode("utf-16-be")
    spelled = "".join(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))
    return b'{"a": ["x", "' + b"before " + spelled.encode() + b' after"], "b": 1.50}'


def events(*documents: object) -> bytes:
    return b"".join(b"data: " + json_of(one) + b"\n\n" for one in documents) + b"data: [DONE]\n\n"


def deltas(value: str, size: int = 2) -> bytes:
    pieces = [f"x{value}y"[at : at + size] for at in range(0, len(value) + 2, size)]
    return events(*({"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces))


def argument_deltas(value: str) -> bytes:
    text = json.dumps({"key": value})
    return events(*({"type": "block_delta", "index": 1, "delta": {"partial_json": one}} for one in text))


SECRET_PLACES: dict[str, Callable[[str], Interaction]] = {
    "query": lambda value: interaction_with(url=f"https://h.example/p?a=1&key={quote_plus(value)}#f"),
    "query with all characters encoded": lambda value: interaction_with(
        url="https://h.example/?k=" + "".join(f"%{byte:02x}" for byte in value.encode())
    ),
    "path of an address": lambda value: interaction_with(url=f"https://h.example/{quote(value)}/end"),
    "userinfo": lambda value: interaction_with(url=f"https://user:{quote(value, safe='')}@h.example/"),
    "header": lambda value: interaction_with(header=f"Bearer {value}; x"),
    "basic": lambda value: interaction_with(header="Basic " + base64.b64encode(f"user:{value}".encode()).decode()),
    "request": lambda value: interaction_with(body=json_of({"messages": [{"content": f"<{value}>"}], "n": [1, value]})),
    "request, only ascii": lambda value: interaction_with(body=json_of({"a": [value]}, ascii_only=True)),
    "request, key": lambda value: interaction_with(body=json_of({value: 1, "b": {f"x {value}": 2}})),
    "request, form": lambda value: interaction_with(body=f"a=1&key={quote_plus(value)}&b=2".encode()),
    "request, base64 in json": lambda value: interaction_with(
        body=json_of({"data": base64.b64encode(f"12{value}3".encode()).decode()})
    ),
    "request, hex": lambda value: interaction_with(body=json_of({"data": value.encode().hex()})),
    "reply": lambda value: interaction_with(reply=json_of({"a": {"b": [None, f"say {value}!"]}})),
    "reply, spaced": lambda value: interaction_with(reply=json.dumps({"a": [value, value]}, indent=3).encode()),
    "reply, all escapes": lambda value: interaction_with(reply=escapes(value)),
    "reply, escaped key": lambda value: interaction_with(
        reply=escapes(value).replace(b'"x", ', b"").replace(b"[", b"{").replace(b"]", b":1}")
    ),
    "json in json": lambda value: interaction_with(reply=json_of({"arguments": json.dumps({"key": value})})),
    "json in json in json": lambda value: interaction_with(
        reply=json_of({"a": json.dumps({"b": json.dumps([value])})})
    ),
    "stream": lambda value: interaction_with(reply=deltas(value)),
    "stream of single characters": lambda value: interaction_with(reply=deltas(value, 1)),
    "stream of arguments": lambda value: interaction_with(reply=argument_deltas(value)),
    "stream of texts": lambda value: interaction_with(
        reply=deltas(value, 3).replace(b'{"choices": [{"index": 0, "delta": ', b"").replace(b"}]}", b"")
    ),
    "stream with the whole": lambda value: interaction_with(reply=events({"type": "done", "text": value})),
    "lines": lambda value: interaction_with(reply=b"".join(json_of({"response": one}) + b"\n" for one in f"<{value}>")),
    "text": lambda value: interaction_with(reply=f"The key is {value}, keep it.".encode()),
    "binary": lambda value: interaction_with(reply=b"\xff\x00" + value.encode() + b"\xfe"),
    "binary with base64": lambda value: interaction_with(
        reply=b"\xff" + base64.b64encode(b"x" + value.encode()) + b"\xfe"
    ),
    "failure": lambda value: interaction_with(failure=f"cannot send {value!r}"),
}


def forms_of(value: str) -> list[bytes]:
    """Independent of the product's own list."""
    raw = value.encode()
    texts = [
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe=""),
        quote(value),
    ]
    texts += [quote_plus(value), raw.hex(), json.dumps(json.dumps(value)[1:-1])[1:-1]]
    cores = [base64.b64encode(bytes(n) + raw)[(4 * n + 2) // 3 :].rstrip(b"=")[:-1] for n in range(3)]
    return [text.encode() for text in texts] + cores


def all_bytes(interaction: Interaction) -> bytes:
    call, reply, failure = interaction.call, interaction.reply, interaction.failure
    texts = [call.url, *(value for _, value in (*call.headers, *reply.headers))]
    texts += [failure.message, json.dumps(failure.fields)] if failure else []
    return b"\n".join([*(text.encode() for text in texts), call.body, reply.body])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_value_is_redacted_in_every_place(kind: str) -> None:
    for place in SECRET_PLACES:
        with case(place):
            _check_redacted(kind, place)


def _check_redacted(kind: str, place: str) -> None:
    value = KINDS[kind]
    redactor = redactor_of(value)
    planted = SECRET_PLACES[place](value)
    assert find_unredacted([DEFAULT, planted], redactor) is not None, "the twin is red"
    clean = redact_interaction(planted, redactor)
    assert find_unredacted([clean], redactor) is None
    left = all_bytes(clean)
    if kind != "brackets":  # it has the beginning of a placeholder in it
        assert [form for form in forms_of(value) if form in left] == []
    assert b"[redacted:KEY]" in left
    assert sum(clean.chunks) == len(clean.reply.body)
    assert 0 not in clean.chunks
    assert redact_interaction(clean, redactor) is clean


@pytest.mark.parametrize("kind", KINDS)
def test_interaction_without_the_value_is_not_copied(kind: str) -> None:
    for place, plant in SECRET_PLACES.items():
        planted = plant(KINDS[kind])
        with case(place):
            assert redact_interaction(planted, redactor_of("another-value-entirely")) is planted
            assert find_unredacted([planted], redactor_of("another-value-entirely")) is None
            assert redact_interaction(planted, Redactor([])) is planted
            assert find_unredacted([planted], Redactor([])) is None


@pytest.mark.parametrize("place", [place for place in SECRET_PLACES if place.startswith(("reply", "stream"))])
@pytest.mark.parametrize("kind", KINDS)
def test_redacted_documents_keep_their_structure(kind: str, place: str) -> None:
    body = SECRET_PLACES[place](KINDS[kind]).reply.body
    clean = redact_interaction(SECRET_PLACES[place](KINDS[kind]), redactor_of(KINDS[kind])).reply.body
    for was, now in zip(_documents(body), _documents(clean), strict=True):
        assert type(was) is type(now)
        assert [*was] == [*now] or "key" in place


def _documents(body: bytes) -> list[Any]:
    texts = [line.removeprefix(b"data: ") for line in body.splitlines()] if body.startswith(b"data:") else [body]
    return [json.loads(text) for text in texts if text.strip() not in (b"", b"[DONE]")]


def test_find_unredacted_names_the_place() -> None:
    value = KINDS["plain"]
    redactor = redactor_of(value)
    told = {place: find_unredacted([DEFAULT, DEFAULT, make(value)], redactor) for place, make in SECRET_PLACES.items()}
    assert told["query"] == "interaction 3, address"
    assert told["header"] == "interaction 3, request header x-some"
    assert told["request"] == "interaction 3, request body"
    assert told["stream"] == "interaction 3, reply body"
    assert told["failure"] == "interaction 3, failure"
    assert not [place for place in told.values() if place is None or value in place]


@pytest.mark.parametrize(
    ("body", "clean"),
    [
        (b'{"a": "xABCDEFG\\n", "b" : 1.0}', b'{"a": "xABCDEFG\\n", "b" : 1.0}'),
        (b'{"a": "x\\u0041BCDEFGH\\n", "b" : 1.0}', b'{"a": "x[redacted:KEY]\\n", "b": 1.0}'),
        (b'{"a": ["ABCDEFGH","ABCDEFGHI"]}', b'{"a": ["[redacted:KEY]", "[redacted:KEY]I"]}'),
        (b'["\\ud83d\\ude00ABCDEFGH\\ud83d"]', b'["\\ud83d\\ude00[redacted:KEY]\\ud83d"]'),
        (b'\xef\xbb\xbf{"a":"\\u0041BCDEFGH"}', b'\xef\xbb\xbf{"a":"[redacted:KEY]"}'),
        (b"ABCDEFGH\n\xff", b"[redacted:KEY]\n\xff"),
        (b'"ABCDEFG\\u0048"', b'"[redacted:KEY]"'),
        (
            b'event: m\r\nid: ABCDEFGH\r\ndata: {"t":\r\ndata: "ABC"}\r\n\r\ndata: {"t":"DEFGH!"}\r\n\r\n',
            b'event: m\r\nid: [redacted:KEY]\r\ndata: {"t":"[redacted:KEY]"}\r\n\r\ndata: {"t":"!"}\r\n\r\n',
        ),
    ],
)
def test_only_documents_with_a_value_are_changed(body: bytes, clean: bytes) -> None:
    assert redact_interaction(interaction_with(reply=body), redactor_of("ABCDEFGH")).reply.body == clean


@pytest.mark.parametrize(
    ("value", "body", "clean"),
    [
        ("12345678", b'{"a": 12345678, "b": "12345678"}', b'{"a": "[redacted:KEY]", "b": "[redacted:KEY]"}'),
        ("12345678", b'{"a": 9123456780, "b": [12345678]}', b'{"a": "9[redacted:KEY]0", "b": ["[redacted:KEY]"]}'),
        ('{"user":"a","pass":"b"}', b'{"a": {"user":"a","pass":"b"}}', b'{"a": "[redacted:KEY]"}'),
        ('"abcdefgh"', b'["abcdefgh"]', b'["[redacted:KEY]"]'),
    ],
)
def test_redacted_json_is_valid_json(value: str, body: bytes, clean: bytes) -> None:
    found = redact_interaction(interaction_with(reply=body), redactor_of(value))
    assert found.reply.body == clean
    assert json.loads(clean)
    assert find_unredacted([found], redactor_of(value)) is None


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ('abc":"defg', b'{"abc":"defgh"}'),
        ('abcd":12345', b'{"abcd":123456}'),
        ('"abcdefgh', b'["abcdefghi"]'),
        ("nabcdefgh", b'["x\\nabcdefgh"]'),
        ("u0041bcd", b'["x\\u0041bcd"]'),
        ("abcdefg\\", b'["abcdefg\\"", 1]'),
    ],
)
def test_value_that_only_the_bytes_have_is_refused_in_a_body_and_replaced_in_a_text(value: str, body: bytes) -> None:
    """It is made of the signs of JSON: without it, the document would not be valid."""
    found = redact_interaction(interaction_with(reply=body), redactor_of(value))
    assert json.loads(found.reply.body) == json.loads(body)
    assert find_unredacted([found], redactor_of(value)) == "interaction 1, reply body"
    assert value not in redactor_of(value).redact_string(body.decode())


def test_chunk_sizes_follow_the_redacted_body() -> None:
    def chunks(body: bytes, sizes: tuple[int, ...]) -> tuple[bytes, tuple[int, ...]]:
        planted = Interaction(DEFAULT.call, HttpReply(200, (), body), chunks=sizes)
        clean = redact_interaction(planted, redactor_of("ABCDEFGH"))
        return clean.reply.body, clean.chunks

    assert chunks(b"xABCDEFGHy", ()) == (b"x[redacted:KEY]y", ())
    assert chunks(b"xABCDEFGHy", (1, 8, 1)) == (b"x[redacted:KEY]y", (1, 14, 1))
    assert chunks(b"xABCDEFGHy", (3, 3, 4)) == (b"x[redacted:KEY]y", (15, 1))
    assert chunks(b"xABCDEFGHyABCDEFGHz", (5, 8, 6)) == (b"x[redacted:KEY]y[redacted:KEY]z", (15, 15, 1))
    assert chunks(b"ABCDEFGH", (1,) * 8) == (b"[redacted:KEY]", (14,))


def test_large_bodies_without_values_are_not_changed() -> None:
    picture = base64.b64encode(bytes(range(256)) * 8192).decode()
    body = json_of({"messages": [{"data": picture, "text": "a\nb"}], "more": ["\\x" * 10_000] * 20})
    planted = interaction_with(body=body, reply=events({"t": picture}, {"t": picture}))
    redactor = Redactor([(f"K{n}", Secret(f"some-value-{n}")) for n in range(30)])
    assert redact_interaction(planted, redactor) is planted
    assert find_unredacted([planted], redactor) is None


def test_deeply_nested_documents_are_redacted() -> None:
    deep = b"[" * 50_000 + b"ABCDEFGH" + b"]" * 50_000
    deepish = b'{"a":' * 900 + b'"\\u0041BCDEFGH"' + b"}" * 900
    for body in (deep, deepish, b"data: " + deepish + b"\n\n"):
        clean = redact_interaction(interaction_with(reply=body), redactor_of("ABCDEFGH"))
        assert find_unredacted([clean], redactor_of("ABCDEFGH")) is None
        assert b"[redacted:KEY]" in clean.reply.body
