"""Which values of environment variables are credentials."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from agentrun.net.environment import find_credentials

PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nshort==\n-----END PRIVATE KEY-----"


def values(**environment: str) -> set[str]:
    return {value.reveal() for _, value in find_credentials(environment)}


def test_credentials_are_found_by_name_and_shape() -> None:
    assert values(SHOP_TOKEN="plain-words-here", PLACE="other-words-here") == {"plain-words-here"}
    assert values(SOMETHING="see sk-proj-abcdefghij0123456789") == {"sk-proj-abcdefghij0123456789"}
    assert values(SHOP_TOKEN="short") == set()
    assert values(SHOP_TOKEN="  with space around \n") == {"with space around"}


def test_named_variables_are_credentials() -> None:
    found = find_credentials({"TEAM": "blue-team-of-nine"}, named={"TEAM"})
    assert [(name, value.reveal()) for name, value in found] == [("TEAM", "blue-team-of-nine")]


PAIR = b64encode(b"svc:pass-word-1").decode()


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("svc:pass-word-1", {"pass-word-1"}),
        (f"Basic {PAIR}", {PAIR, "svc:pass-word-1", "pass-word-1"}),
        ("Basic ***not-base64***", {"***not-base64***"}),
        ("Bearer abcdefgh12", {"abcdefgh12"}),
        (PEM, {"MIIEvQIBADANBgkq"}),
        ("first line of words\nand one that is long enough", {"and one that is long enough"}),
        (json.dumps({"client_secret": "inner-secret", "name": "not-a-secret"}), {"inner-secret"}),
        (json.dumps({"tokens": [{"token": "listed-token"}], "key": {"private_key": PEM}}), {"listed-token", PEM}),
        ('{"token": "broken-json', set()),
        ("[" * 100_000, set()),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_parts_of_a_credential_are_credentials(value: str, parts: set[str]) -> None:
    found = values(SHOP_SECRET=value)
    assert found >= parts | {value.strip()}
    assert "not-a-secret" not in found


def test_passwords_in_urls_are_found() -> None:
    assert values(DATABASE_URL="postgres://svc:p%40ss-word9@host/db") == {"p%40ss-word9", "p@ss-word9"}


def test_pwd_is_no_credential() -> None:
    assert values(PWD="/srv/somebody/project", SHOP_PWD="plain-words-here") == {"plain-words-here"}
