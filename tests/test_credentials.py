"""Which values of environment variables are credentials."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from agentrun.credentials import find_credentials

PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nshort==\n-----END PRIVATE KEY-----"


def credential_values(**environment: str) -> set[str]:
    return {value.reveal() for _, value in find_credentials(environment)}


def test_credentials_are_found_by_name_and_shape() -> None:
    assert credential_values(SHOP_TOKEN="plain-words-here", PLACE="other-words-here") == {"plain-words-here"}
    assert credential_values(SOMETHING="see sk-proj-abcdefghij0123456789") == {"sk-proj-abcdefghij0123456789"}
    assert credential_values(SHOP_TOKEN="short") == set()
    assert credential_values(SHOP_TOKEN="  with space around \n") == {"with space around"}


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
    found = credential_values(SHOP_SECRET=value)
    assert found >= parts | {value.strip()}
    assert "not-a-secret" not in found


def test_passwords_in_urls_are_found() -> None:
    assert credential_values(DATABASE_URL="postgres://svc:p%40ss-word9@host/db") == {"p%40ss-word9", "p@ss-word9"}


def test_pwd_is_no_credential() -> None:
    assert credential_values(PWD="/srv/somebody/project", SHOP_PWD="plain-words-here") == {"plain-words-here"}


@pytest.mark.parametrize(
    "name",
    [
        "DB_PASS",
        "PGPASSWORD",
        "OPENAI_KEY",
        "SECRET_KEY_BASE",
        "SENTRY_DSN",
        "GCP_SA_KEY",
        "API_KEY_PROD",
        "PASSWORD1",
        "SSHPASS",
        "dbPassword",
        "npm_config__authToken",
        "SESSION_COOKIE",
        "MY2TOKENS",
        "AUTH_HEADER",
        "CLIENT_CERT",
        "MY_PRIVATE_THING",
        "REDIS_PASS_2",
        "MYSECRET",
    ],
)
def test_words_of_a_name_say_that_it_is_a_credential(name: str) -> None:
    assert credential_values(**{name: "https://a1b2c3d4@o12.shop.example/7"}) >= {"https://a1b2c3d4@o12.shop.example/7"}
    assert credential_values(**{name: "correcthorse99battery"}) == {"correcthorse99battery"}
    for harmless in ("true", "1", "prod", "abc1234"):
        assert credential_values(**{name: harmless}) == set()


@pytest.mark.parametrize("name", ["OPENAI_KEY", "AUTH_HEADER", "API_KEY_PROD"])
def test_plain_word_is_no_credential(name: str) -> None:
    assert credential_values(**{name: "production"}) == set()


@pytest.mark.parametrize("name", ["DB_PASS", "PGPASSWORD", "PASSWORD1", "REDIS_PWD_2"])
def test_password_may_be_a_plain_word(name: str) -> None:
    assert credential_values(**{name: "correcthorse"}) == {"correcthorse"}


@pytest.mark.parametrize(
    "name",
    [
        "KEYBOARD_LAYOUT",
        "PATH",
        "SSH_AUTH_SOCK",
        "XAUTHORITY",
        "OLDPWD",
        "GPG_KEY",
        "TOKENIZERS_PARALLELISM",
        "PRIVATE_KEY_FILE",
        "SSL_CERT_DIR",
        "GIT_AUTHOR",
        "COMPASS",
        "MONKEY",
        "AUTH_URL",
        "TOKEN_TTL",
        "SECRET_NAME",
        "COOKIECUTTER",
        "PASSENGER",
        "HOME",
        "PYTEST_CURRENT_TEST",
        "42",
        "_",
    ],
)
def test_other_names_are_no_credentials(name: str) -> None:
    assert credential_values(**{name: "/usr/share/words-and-numbers-42"}) == set()
