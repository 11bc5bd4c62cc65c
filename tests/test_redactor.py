"""`Redactor` finds known values in every encoding, replaces them and changes nothing else."""

import base64
import copy
import json
import pickle
import random
import string
from collections.abc import Callable
from html import escape
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentrun import redactor as module
from agentrun.redactor import Redactor, encoded_forms
from agentrun.secret import Secret, mask, placeholder

from .named_cases import case
from .steps import at_most

KEY = "sk-Planted0Key/with+all=of&them"
PLACEHOLDER = placeholder("KEY")

GO = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def _dotnet_json(value: str) -> str:
    """As System.Text.Json writes it: everything that might mean something anywhere is an escape, in capitals."""
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\\": "\\\\"}
    units = [value.encode("utf-16-le")[at : at + 2] for at in range(0, len(value.encode("utf-16-le")), 2)]
    chars = [int.from_bytes(unit, "little") for unit in units]
    plain = [chr(code) if 32 <= code < 127 and chr(code) not in "\"&'+<>`\\" else "" for code in chars]
    return "".join(as_is or short.get(chr(code), f"\\u{code:04X}") for as_is, code in zip(plain, chars, strict=True))


FORMS: dict[str, Callable[[str], str]] = {
    "raw": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "json": json.dumps,
    "json with characters": lambda value: json.dumps(value, ensure_ascii=False),
    "json in json": lambda value: json.dumps(json.dumps(value)),
    "json in json with characters": lambda value: json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False),
    "json of PHP": lambda value: json.dumps(value).replace("/", "\\/"),
    "json of Go": lambda value: json.dumps(value, ensure_ascii=False).translate(GO),
    "json of .NET": _dotnet_json,
    "html": escape,
    "html of PHP": lambda value: escape(value, quote=False).replace('"', "&quot;").replace("'", "&#039;"),
    "html of Go": lambda value: (
        escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;").replace("+", "&#43;")
    ),
    "xml": lambda value: escape(value).replace("&#x27;", "&apos;"),
    "html, quotes as they are": lambda value: escape(value, quote=False),
    "python": repr,
    "query": lambda value: quote(value, safe=""),
    "query in small letters": lambda value: _lower_hex(quote(value, safe="")),
    "path": quote,
    "form": quote_plus,
    "javascript": lambda value: quote(value, safe="!*'()"),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 for addresses": lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    "basic": lambda value: base64.b64encode(f"user:{value}".encode()).decode(),
    "basic, other": lambda value: base64.b64encode(f"users:{value}:x".encode()).decode(),
    "basic, third": lambda value: base64.urlsafe_b64encode(f"a user:{value}..".encode()).decode(),
    "base64 of json": lambda value: base64.b64encode(json.dumps({"a": value}).encode()).decode(),
    "base64 of json with characters": lambda value: base64.urlsafe_b64encode(
        json.dumps([value], ensure_ascii=False).encode()
    ).decode(),
    "hex of json": lambda value: json.dumps(value).encode().hex(),
    "query of json": lambda value: quote(json.dumps(value), safe=""),
    "python, only ascii": ascii,
    "python bytes": lambda value: repr(value.encode()),
    "hex": lambda value: value.encode().hex(),
    "HEX": lambda value: value.encode().hex().upper(),
}


def _lower_hex(quoted: str) -> str:
    first, *rest = quoted.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def certain_part(form: str, value: str) -> str:
    """What of a form the value alone decides, in a text that must not be left."""
    text = FORMS[form](value)
    if form.startswith("basic") or " of json" in form or form == "python bytes":
        return ""
    return text.strip("\"'=\\") if form.startswith(("json", "python", "base64")) else text


def redactor(*values: str, shortest: int = 8) -> Redactor:
    return Redactor([("KEY", Secret(value)) for value in values], shortest=shortest)


SECRET_VALUES = [
    KEY,
    "plain-key-0123456789",
    'quo"te and back\\slash',
    "line\nbreak\ttab",
    "ümläut-pässwörd-😀",
    "100%+plus/slash=~",
    "'single' \"and\" <html> & more",
    "-----BEGIN KEY-----\nMIIB/abc+def\n-----END KEY-----\n",
    "trailing-backslash\\",
    "bracket[s]-and-[",
    "\x7f\x00control-bytes",
]


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_every_form_is_found(value: str) -> None:
    for form in FORMS:
        with case(form):
            _check_found(form, value)


def _check_found(form: str, value: str) -> None:
    text = f"before {FORMS[form](value)} after"
    known = redactor(value)
    assert known.find_first(text) == "KEY"
    assert PLACEHOLDER in known.redact_text(text)
    assert known.find_first(known.redact_text(text)) is None
    assert known.redact_bytes(text.encode()) == known.redact_text(text).encode()
    left = certain_part(form, value)
    assert not left or left not in known.redact_text(text)
    assert redactor("something-else").redact_text(text) is text


def test_redact_text_changes_and_find_first() -> None:
    known = Redactor([("A", Secret("first-value")), ("B", Secret("second-value")), ("A", Secret("third-value"))])
    text = "first-value, second-value; third-value."
    assert known.redact_text(text) == "[redacted:A], [redacted:B]; [redacted:A]."
    assert [(start, end) for start, end, _ in known.changes(text.encode())] == [(0, 11), (13, 25), (27, 38)]
    assert known.changes("ä😀 first-value".encode()) == [(7, 18, b"[redacted:A]")]
    assert known.find_first("… second-value first-value") == "B"
    assert known.find_first("nothing") is None


def test_value_with_bytes_that_are_not_utf_8_is_found_as_it_is_shown() -> None:
    data = b"pass\xffword-99"
    known = redactor(data.decode("utf-8", "surrogateescape"))
    for errors in ("replace", "surrogateescape"):
        assert known.redact_text(f"<{data.decode('utf-8', errors)}>") == f"<{PLACEHOLDER}>"


def test_redact_excerpt_removes_the_cut_beginning_of_a_value() -> None:
    redactor = Redactor([("KEY", Secret(KEY))])
    for length in range(4, len(KEY)):
        assert redactor.redact_excerpt(f"a {KEY[:length]}… b … c") == "a … b … c"
    assert redactor.redact_excerpt(f"a {KEY} {KEY[:9]}…") == f"a {PLACEHOLDER} …"
    assert redactor.redact_excerpt("risk… [… [reda… desk-…") == "risk… [… … desk-…"
    assert redactor.redact_excerpt("nothing was cut") == "nothing was cut"
    assert Redactor([]).redact_excerpt("a… b") == "a… b"


def test_values_below_the_minimum_length_are_ignored() -> None:
    assert not redactor("1234567", "")
    assert redactor("12345678")
    assert not Redactor([])
    few = redactor("", "123", shortest=0)
    assert few.redact_text("123 a123b 1234 0123 12-123") == f"{PLACEHOLDER} a{PLACEHOLDER}b 1234 0123 12-{PLACEHOLDER}"
    assert redactor("12345678").redact_text("9123456789") == f"9{PLACEHOLDER}9"
    assert redactor("Ann", shortest=3).redact_text("Ann, Annual") == f"{PLACEHOLDER}, {PLACEHOLDER}ual"


def test_longest_of_overlapping_values_is_redacted() -> None:
    known = Redactor(
        [("SHORT", Secret("abcdefgh")), ("LONG", Secret("abcdefgh-ijkl")), ("OTHER", Secret("ghi-xyzabc"))]
    )
    assert known.redact_text("abcdefgh-ijkl abcdefgh-ij") == "[redacted:LONG] [redacted:SHORT]-ij"
    assert known.redact_text("abcdefghi-xyzabc") == "[redacted:SHORT]i-xyzabc"


def test_placeholders_are_not_redacted_again() -> None:
    known = Redactor([("redacted-name", Secret("redacted")), ("B", Secret("redacted-name")), ("C", Secret("abcdefg["))])
    for text in ("redacted", "redacted-name", "abcdefgredacted", "abcdefg[redacted-name]"):
        once = known.redact_text(text)
        assert known.redact_text(once) == once
        assert known.find_first(once) is None


def test_value_that_contains_a_placeholder_is_redacted_around_it() -> None:
    known = redactor("before-it-[redacted:OTHER]-after-it")
    assert known.redact_text("before-it-[redacted:OTHER]-after-it") == f"{PLACEHOLDER}[redacted:OTHER]{PLACEHOLDER}"
    assert not redactor("[redacted:OTHER]")


def test_long_values_are_matched_in_full() -> None:
    """Only their beginning is in the pattern."""
    one, two = ("x" * 100 + end for end in ("one", "two"))
    known = Redactor([("ONE", Secret(one)), ("TWO", Secret(two + "y" * 5000))])
    assert known.redact_text(f"{two} {one}") == f"{two} [redacted:ONE]"
    assert known.redact_text(two + "y" * 5001) == "[redacted:TWO]y"
    assert redactor("x" * 30, "x" * 30 + "yz").redact_text("x" * 30 + "yz") == PLACEHOLDER


class TestData:
    def test_redact_data_replaces_texts_and_keys(self) -> None:
        data = {"a": [KEY, 1, None], f"key {KEY}": {"b": ("x", f"<{KEY}>")}, "c": [True]}
        clean = redactor(KEY).redact_data(data)
        assert clean == {
            "a": [PLACEHOLDER, 1, None],
            f"key {PLACEHOLDER}": {"b": ("x", f"<{PLACEHOLDER}>")},
            "c": [True],
        }
        assert clean["c"] is data["c"]
        assert redactor("12345678").redact_data([12345678]) == [12345678]
        assert redactor("12345678").redact_data([12345678], numbers=True) == [PLACEHOLDER]

    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        )
    )
    def test_redact_data_returns_unchanged_data_as_is(self, data: Any) -> None:
        assert redactor(KEY).redact_data(data) is data


def test_redactor_does_not_show_its_values() -> None:
    known = redactor(KEY).with_values([("B", Secret("other-value"))])
    known.find_first("x" * 100)
    assert repr(known) == "Redactor(2 values)"
    assert "Planted" not in repr(vars(known)).replace("_Finder", "")
    assert known.redact_text("other-value") == "[redacted:B]"
    assert known.redact_text(KEY) == PLACEHOLDER
    with pytest.raises(TypeError) as refused:
        pickle.dumps(known)
    assert "Planted" not in str(refused.value)
    assert copy.copy(known).redact_text(KEY) == PLACEHOLDER


def test_with_values_adds_values_to_a_copy() -> None:
    first = redactor(KEY)
    more = first.with_values([("B", Secret("other-value")), ("C", Secret("short"))])
    assert first.find_first("other-value") is None
    assert (more.find_first("other-value"), more.find_first("short"), more.find_first(KEY)) == ("B", None, "KEY")
    assert more.with_values([("C", Secret("short"))], shortest=3).find_first("in short:") == "C"


# What is random. Few characters, so that things meet that seldom do.
FEW = st.text('ab"\\/[]:1e%+ \nä', max_size=30)
ANY = st.text(max_size=30)
SECRETS = st.one_of(st.text('ab"\\/[%ä', min_size=8, max_size=14), st.text(min_size=8, max_size=20))


@given(SECRETS, ANY, ANY, st.sampled_from(sorted(FORMS)))
def test_no_encoding_of_a_random_value_is_left(value: str, before: str, after: str, form: str) -> None:
    if any(0xD800 <= ord(char) < 0xE000 for char in value):
        return  # encoders refuse it
    known = redactor(value)
    clean = known.redact_text(before + FORMS[form](value) + after)
    assert known.redact_text(clean) == clean
    assert known.find_first(clean) is None
    left = certain_part(form, value)
    assert not left or left not in clean.replace(PLACEHOLDER, "\0\0")


@given(
    st.binary(max_size=20),
    SECRETS,
    st.binary(max_size=20),
    st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]),
)
def test_redacted_base64_does_not_decode_to_the_value(
    before: bytes, value: str, after: bytes, encode: Callable[[bytes], bytes]
) -> None:
    raw = value.encode("utf-8", "surrogatepass")
    clean = redactor(value).redact_text(encode(before + raw + after).decode())
    assert PLACEHOLDER in clean
    for left in clean.split(PLACEHOLDER):
        for cut in range(4):
            some = left[cut:].replace("-", "+").replace("_", "/").rstrip("=")
            assert raw not in base64.b64decode(some[: len(some) // 4 * 4])


@st.composite
def texts(draw: st.DrawFn) -> tuple[Redactor, str]:
    """Values, and a text in which they and their beginnings and placeholders are."""
    values = draw(
        st.lists(
            st.one_of(SECRETS, st.text("ab1", min_size=3, max_size=5), st.sampled_from(["1234", "123", "12345678"])),
            min_size=1,
            max_size=3,
        )
    )
    names = st.sampled_from(["K", "ab", "1"])
    known = Redactor([(draw(names), Secret(value)) for value in values], shortest=3)
    whole = st.sampled_from(values)
    parts = st.one_of(
        FEW,
        whole,
        st.sampled_from(["[redacted:K]", "[redacted:ab]", "[redacted:", ":", ", ", "}"]),
        st.tuples(whole, st.integers(0, 14)).map(lambda cut: cut[0][: cut[1]]),
        st.tuples(whole, st.sampled_from(sorted(FORMS))).map(lambda one: _formed(*one)),
    )
    return known, "".join(draw(st.lists(parts, max_size=6)))


def _formed(value: str, form: str) -> str:
    try:
        return FORMS[form](value)
    except UnicodeEncodeError:
        return value


def redact_in_pieces(known: Redactor, text: str, cuts: list[int]) -> str:
    passing = known.stream()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return "".join([*(passing.feed(text[start:end]) for start, end in pairwise(places)), passing.end()])


@given(texts(), st.lists(st.integers(0, 60), max_size=12))
@example((redactor("abcdefg["), "abcdefg[redacted:KEY]"), [8])
@example((redactor("123", shortest=3), "1231 0123,123"), [3, 6, 9])
@example((redactor("12345678"), ':12345678 ,"x":[12345678'), [2, 9, 10, 20])
def test_stream_gives_the_same_text_as_redact_text(found: tuple[Redactor, str], cuts: list[int]) -> None:
    known, text = found
    assert redact_in_pieces(known, text, cuts) == known.redact_text(text)
    assert redact_in_pieces(known, text, list(range(len(text)))) == known.redact_text(text)


@given(texts())
def test_changes_agree_with_the_text(found: tuple[Redactor, str]) -> None:
    known, text = found
    data, pieces, at = text.encode("utf-8", "surrogatepass"), [], 0
    for start, end, new in known.changes(data):
        assert at <= start < end
        pieces += [data[at:start], new]
        at = end
    assert b"".join([*pieces, data[at:]]).decode("utf-8", "surrogatepass") == known.redact_text(text)
    assert bool(pieces) == (known.find_first(text) is not None)


class TestPassing:
    def test_stream_holds_back_only_a_possible_value(self) -> None:
        passing = redactor("secret-value").stream()
        assert passing.feed("a text, sec") == "a text, "
        assert passing.feed("ond sec") == "second "
        assert passing.feed("ret-") == ""
        assert passing.feed("value!") == f"{PLACEHOLDER}!"
        assert passing.feed("secret-value") == PLACEHOLDER
        assert passing.feed("se") == ""
        assert passing.end() == "se"
        assert passing.end() == ""

    def test_stream_without_values_holds_back_nothing(self) -> None:
        passing = Redactor([]).stream()
        assert passing.feed("sec") == "sec"
        assert passing.end() == ""


def test_million_characters_take_few_steps() -> None:
    chance = random.Random(3)  # noqa: S311  # the same in every run
    letters = string.ascii_letters + string.digits + "+/"
    secrets = [(f"K{n}", Secret("".join(chance.choices(letters, k=48)))) for n in range(30)]
    known = Redactor(secrets)
    known.find_first("begun")
    text = "".join(chance.choices(letters, k=1_000_000))
    with at_most(1_000):
        assert known.find_first(text) is None
    assert known.find_first(text + secrets[29][1].reveal()) == "K29"


def test_check_detects_a_missing_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: without one of the forms, the check of that form is red."""
    every = encoded_forms
    monkeypatch.setattr(module, "encoded_forms", lambda value: (one for one in every(value) if "%" not in one))
    with pytest.raises(AssertionError):
        _check_found("query", KEY)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('{"token": "[redacted:STOCK_TOKEN]"}', None),
        ("api_key=[redacted:a.b-c]", None),
        ("https://ada:[redacted:PASSWORD]@shop.example/", None),
        ('{"token": "[redacted:A]", "password": "hunter2hunter2"}', '{"token": "[redacted:A]", "password": "***"}'),
        ("token: [redacted:not a name9] x", "token: *** a name9] x"),
        ("token: x[redacted:A1]", "token: ***]"),
        ("token: [redacted:sk-ant-" + "a1B2c3D4" * 4 + "]", "token: ***]"),
    ],
)
def test_mask_keeps_placeholders(text: str, seen: str | None) -> None:
    assert mask(text) == (text if seen is None else seen)
