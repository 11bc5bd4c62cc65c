"""Dotted paths select fields of JSON data."""

from copy import deepcopy
from typing import Any

import pytest

from agentrun.spec.v1.field_types import replace_at_path

DATA: dict[str, Any] = {
    "user": {"email": "ada", "emails": ["a", "b"], "id": 7},
    "messages": [{"content": "x", "name": "one"}, {"content": "y"}, "z"],
    "raw": '{"at": 1, "items": [{"at": 2.50}]}',
    "text": "{not json",
}


def replaced(path: str, **options: bool) -> tuple[int, dict[str, Any]]:
    data = deepcopy(DATA)
    count = replace_at_path(data, path, "?", **options)
    return count, {key: value for key, value in data.items() if value != DATA[key]}


@pytest.mark.parametrize(
    ("path", "count", "changed"),
    [
        ("user.email", 1, {"user": {"email": "?", "emails": ["a", "b"], "id": 7}}),
        ("user.email*", 2, {"user": {"email": "?", "emails": "?", "id": 7}}),
        ("user.emails.1", 1, {"user": {"email": "ada", "emails": ["a", "?"], "id": 7}}),
        ("user.emails.*", 2, {"user": {"email": "ada", "emails": ["?", "?"], "id": 7}}),
        ("messages.*.name", 1, {"messages": [{"content": "x", "name": "?"}, {"content": "y"}, "z"]}),
        ("user", 1, {"user": "?"}),
        ("*", 4, dict.fromkeys(DATA, "?")),
        ("user.phone", 0, {}),
        ("user.email.domain", 0, {}),
        ("messages.3", 0, {}),
        ("raw.at", 0, {}),
    ],
)
def test_path_selects_every_value_that_it_leads_to(path: str, count: int, changed: dict[str, Any]) -> None:
    assert replaced(path) == (count, changed)


@pytest.mark.parametrize(
    ("path", "count", "changed"),
    [
        ("raw.at", 1, {"raw": '{"at":"?","items":[{"at":2.5}]}'}),
        ("raw.items.*.at", 1, {"raw": '{"at":1,"items":[{"at":"?"}]}'}),
        ("raw", 1, {"raw": "?"}),
        ("raw.absent", 0, {}),
        ("text.not", 0, {}),
    ],
)
def test_path_may_lead_into_a_text_that_is_json(path: str, count: int, changed: dict[str, Any]) -> None:
    """A text in which nothing is selected is left as it is written."""
    assert replaced(path, in_json_texts=True) == (count, changed)
