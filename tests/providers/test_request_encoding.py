"""Helpers that all codecs use to encode request bodies."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.canonical_json import sorted_json
from agentrun.core.messages import File
from agentrun.errors import PackageError
from agentrun.providers.request_encoding import (
    data_url,
    drop_none,
    file_text,
    refuse_reserved_options,
    reserved_options,
    route_auth,
    shared_problems,
    splice_items,
)
from agentrun.wire import HttpAuth

from .exchange import request

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), _json, max_size=5), st.text(max_size=3), st.lists(_json, max_size=4))
def test_spliced_items_give_sorted_json(fields: dict[str, Any], key: str, items: list[Any]) -> None:
    assert splice_items(fields, key, [sorted_json(item) for item in items]) == sorted_json({**fields, key: items})


def test_having_drops_only_none() -> None:
    assert drop_none(a=None, b=0, c=False, d="", e=[]) == {"b": 0, "c": False, "d": "", "e": []}


def test_data_url_is_base64() -> None:
    assert data_url("image/png", b"\x00\xff") == "data:image/png;base64,AP8="


@pytest.mark.parametrize(
    ("media_type", "text"),
    [
        ("text/plain", "a.txt:\n\nna\u00efve"),
        ("text/csv", "a.txt:\n\nna\u00efve"),
        ("application/json", "a.txt:\n\nna\u00efve"),
        ("application/pdf", None),
        ("application/octet-stream", None),
    ],
)
def test_text_files_are_read_as_text(media_type: str, text: str | None) -> None:
    assert file_text(File("a.txt", media_type, "sha256:x", 6), "na\u00efve".encode()) == text


def test_reserved_options_are_reported_and_refused() -> None:
    route = request("openai", "x", route={"options": {"b": 1, "a": 2, "c": 3}}).route
    reserved = reserved_options(route, frozenset("cx"))
    assert shared_problems(reserved, {}) == ["model.options cannot set c: use the key of the spec for it"]
    refuse_reserved_options(reserved_options(route, frozenset("xy")))
    with pytest.raises(PackageError) as caught:
        refuse_reserved_options(reserved_options(route, frozenset("ba")))
    assert (caught.value.code, caught.value.fields["pointer"]) == ("package.invalid", "/model/options/a")


@pytest.mark.parametrize(
    ("route", "name"),
    [
        ({}, "USUAL"),
        ({"api_key": "${MINE}"}, "MINE"),
        ({"base_url": "http://127.0.0.1:8080/v1", "api_key": "${MINE}"}, "MINE"),
        ({"base_url": "http://127.0.0.1:8080/v1"}, None),
    ],
)
def test_default_key_is_sent_only_to_the_default_address(route: dict[str, Any], name: str | None) -> None:
    """The usual key never goes to an address of somebody else."""
    found = route_auth(request("openai", "x", route=route).route, "authorization", "Bearer ", "USUAL")
    assert found == (HttpAuth("authorization", "Bearer ", name) if name else None)
