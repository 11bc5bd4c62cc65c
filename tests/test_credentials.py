"""Which values of environment variables are credentials."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from agentrun.credentials import (
    PROVIDER_KEYS,
    HiddenSecrets,
    find_credentials,
    is_credential,
    removed_names,
    short_credentials,
)

from .credential_names import CREDENTIAL_NAMES

PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nshort==\n-----END PRIVATE KEY-----"
RANDOM = "aB3dE6gH9jK2mN5pQ8sT"


def credential_values(**environment: str) -> set[str]:
    return {value.reveal() for _, value in find_credentials(environment)}


@pytest.mark.parametrize("name", CREDENTIAL_NAMES)
def test_words_of_a_name_say_that_it_is_a_credential(name: str) -> None:
    assert credential_values(**{name: "correct horse"}) == {"correct horse"}
    for other in (name.lower(), f"42{name}7", f"shop.{name}", f"shop-{name}-1"):
        assert credential_values(**{other: "correct horse"}) == {"correct horse"}
    for harmless in ("short-7", "20260118", "-12.5e", "true", "production", "shop.example.com", "/usr/bin"):
        assert credential_values(**{name: harmless}) == set()


def test_there_are_as_many_names_as_were_tried() -> None:
    assert len({*CREDENTIAL_NAMES}) == 31


OTHER_NAMES = """
    MONKEY KEYBOARD_LAYOUT TOKENIZERS_PARALLELISM COMPASS PASSENGER GIT_AUTHOR XAUTHORITY OLDPWD COOKIECUTTER CERTAIN
    PRIVATEER K_EY DSNX JWTS2X PLACE 42 _ KEY2S T0KEN
"""


@pytest.mark.parametrize("name", OTHER_NAMES.split())
def test_other_names_are_no_credentials(name: str) -> None:
    assert credential_values(**{name: "correct horse"}) == set()


def test_length_from_which_a_value_is_hidden() -> None:
    assert credential_values(SHOP_TOKEN="7 chars") == set()
    assert credential_values(SHOP_TOKEN="8 chars.") == {"8 chars."}
    assert credential_values(SHOP_TOKEN="  with space around \n") == {"with space around"}


HARMLESS = [
    "/usr/bin", "/usr/bin:/bin:/etc", "/etc/hosts", "https://example.com/docs", "http://localhost:8080/v1/chat",
    "https://github.com/ada/shop/actions/runs/9817263541", "git@github.com:ada/shop.git", "redis://cache.internal:6379/0",
    "postgres://db.internal/shop", "https://api.example.com/v1?page=2&sort=created_at",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709", "5f4dcc3b5aa765d61d8327deb882cf99", "a1b2c3d",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "550e8400-e29b-41d4-a716-446655440000",
    "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "gpt-4.1-mini", "claude-haiku-4-5-20251001", "gemini-2.5-flash",
    "meta-llama/Llama-3.1-8B-Instruct", "text-embedding-3-large", "shop.example.com", "db-1.internal.shop.example:5432",
    "ip-10-0-12-7.eu-central-1.compute.internal", "127.0.0.1:8080", "main", "feature/refund-limits-2026",
    "renovate/major-python-packages-3.x", "refs/heads/release-2026-01", "v1.24.0-rc.3", "en_US.UTF-8", "xterm-256color",
    "2026-01-18T10:30:00Z", "Europe/Berlin", "1768732200", "3.14159265358979323846", "ghcr.io/ada/shop:2026.01.18",
    "python3.11 -m pytest -n auto", "AdaLovelaceWasAMathematician", "UPPER_CASE_CONSTANT_NAME_42",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "no-reply@shop.example",
]  # fmt: skip


def test_harmless_values_stay_visible() -> None:
    assert len(HARMLESS) >= 40
    hidden = {value for value in HARMLESS if credential_values(PLACE=value)}
    assert hidden == set()


@pytest.mark.parametrize("value", ["/usr/bin", "127.0.0.1:8080", "db-1.internal.shop.example:5432", "1768732200"])
@pytest.mark.parametrize("name", ["DB_AUTH", "PRIVATE_KEY_FILE"])
def test_harmless_value_of_a_credential_name_stays_visible(name: str, value: str) -> None:
    assert credential_values(**{name: value}) == set()


@pytest.mark.parametrize(
    "value", ["/usr/no-such-file", "Shop.Example.Com", "1768732200x", "productions", "a word", "tests"]
)
def test_value_that_is_not_certainly_harmless_is_hidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file-in-the-folder").touch()
    assert credential_values(DB_AUTH=f"{value}-extra") == {f"{value}-extra"}
    assert credential_values(DB_AUTH="a-file-in-the-folder") == {"a-file-in-the-folder"}, "a password may be its name"


@pytest.mark.parametrize(
    ("value", "is_secret"),
    [
        (RANDOM, True),
        (RANDOM[:-1], False),
        (RANDOM + "+/_=~-", True),
        (RANDOM + ".", False),
        (RANDOM.lower(), False),
        (RANDOM.upper(), False),
        ("aBdEgHjKmNpQsTvWyZaCfI", False),
        ("aB1" * 7, False),
        ("aB3dE6gH9jK2" + "a" * 8, False),
        ("aB3dE6gH9jK2" + "aB" * 4, False),
        ("aB3dE6gH9jK2m5" + "aaaB22", True),
    ],
)
def test_random_value_is_a_credential(value: str, is_secret: bool) -> None:
    """20 characters of the set with upper case, lower case and digits, and 3.5 bits each."""
    assert credential_values(PLACE=value) == ({value} if is_secret else set())


@pytest.mark.parametrize("prefix", ["GITHUB_", "RUNNER_", "CI_"])
def test_names_that_ci_services_use(prefix: str) -> None:
    assert credential_values(**{f"{prefix}REF_ID": RANDOM}) == set()
    assert credential_values(**{prefix.removesuffix("_") + "S_ID": RANDOM}) == {RANDOM}
    assert credential_values(**{f"{prefix}TOKEN": RANDOM}) == {RANDOM}, "its name counts"
    assert credential_values(**{f"{prefix}REF": "ghp_abcdefghij0123456789AB"}), "its shape counts"


def test_random_name_of_a_file_is_no_credential(tmp_path: Path) -> None:
    path = f"{tmp_path}/{RANDOM}".replace("_", "-")
    assert is_credential("PLACE", RANDOM)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).touch()
    assert not is_credential("PLACE", path)


def test_shape_of_a_key_is_a_credential() -> None:
    assert credential_values(SOMETHING="see sk-proj-abcdefghij0123456789") == {"sk-proj-abcdefghij0123456789"}


def test_named_variables_are_credentials() -> None:
    found = find_credentials({"TEAM": "production", "PLACE": "production"}, named={"TEAM"})
    assert [(name, value.reveal()) for name, value in found] == [("TEAM", "production")]


# --- parts ----------------------------------------------------------------------------------------------------------

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
        ("sid=cookie-value-1; Path=/not-a-secret; theme=dark-theme", {"cookie-value-1", "dark-theme"}),
        (json.dumps({"client_secret": "inner-secret", "type": "not-a-secret"}), {"inner-secret"}),
        (json.dumps({"any": [{"thing": "listed-token"}], "key": {"private_key": PEM}}), {"listed-token", PEM}),
        ("https://k3y-of-sentry@o12.ingest.example/7", {"k3y-of-sentry"}),
        ("amqp://svc:p%40ss-word9@mq/not-a-secret", {"svc:p@ss-word9", "p%40ss-word9", "p@ss-word9"}),
        ("https://a.example/x?sig=query%20part&v=1", {"query%20part", "query part"}),
        ('sid="quoted value 1"; Path=/; __Host-id="quoted-2"', {"quoted value 1", "quoted-2"}),
        ("Server=db;User Id=me;Password=two words;", {"two words"}),
        (json.dumps({"a": json.dumps({"client_secret": "inner-secret"})}), {"inner-secret"}),
        (b64encode(json.dumps({"private_key": "inner-secret"}).encode()).decode(), {"inner-secret"}),
        (json.dumps({"auths": {"hub.example": {"auth": PAIR}}}), {PAIR, "svc:pass-word-1", "pass-word-1"}),
        (PEM.replace("\n", "\\n"), {"MIIEvQIBADANBgkq"}),
        (f"subject=shop\n{PEM}", {"MIIEvQIBADANBgkq"}),
        (f"Authorization: Basic {PAIR}", {PAIR, "pass-word-1"}),
        ("X-Api-Key: key-of-a-shop", {"key-of-a-shop"}),
        ("https://first-key:second-key@o12.example/7", {"first-key", "second-key"}),
        ("https://a.example/x#access_token=after-the-hash", {"after-the-hash"}),
        ('{"token": "broken-json', set()),
        ("[" * 100_000, set()),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_parts_of_a_credential_are_credentials(value: str, parts: set[str]) -> None:
    found = credential_values(SHOP_SECRET=value)
    assert found >= parts | {value.strip()}
    assert not [each for each in found if each.endswith("not-a-secret") and each != value]


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("postgres://svc:p%40ss-word9@host/db", {"p%40ss-word9", "p@ss-word9"}),
        ("https://a.example/x?api_key=query-part&page=number-two", {"query-part"}),
        ("host=db user=somebody password=libpq-word", {"libpq-word"}),
        ("theme=dark-theme; session_token=cookie-value-1; Path=/", {"cookie-value-1"}),
        (json.dumps({"clientSecret": "inner-secret", "name": "not-a-secret"}), {"inner-secret"}),
        (json.dumps({"deep": [{"db-password": "deep-secret"}]}), {"deep-secret"}),
        (json.dumps({"deep": json.dumps({"dbPassword": "deep-secret"})}), {"deep-secret"}),
        ("Server=db;User Id=me;Password=two words;", {"two words"}),
        (f"/opt/{RANDOM}:/srv", set()),
    ],
)
def test_credentials_inside_another_value(value: str, parts: set[str]) -> None:
    assert credential_values(SHOP_CONFIG=value) == parts


# --- the operator and the project ----------------------------------------------------------------------------------


def test_operator_removes_names() -> None:
    environment = {"SHOP_KEY": "not secret", "DB_PASS": "is secret", "AGENTRUN_NOT_SECRET": "SHOP_KEY, OTHER_KEY"}
    assert credential_values(**environment) == {"is secret"}
    assert removed_names(environment) == {"SHOP_KEY"}
    found = find_credentials(environment, named={"SHOP_KEY"})
    assert [name for name, _ in found] == ["DB_PASS"]


@pytest.mark.parametrize("name", [*PROVIDER_KEYS, "ROUTE_KEY"])
def test_key_of_a_provider_cannot_be_removed(name: str) -> None:
    environment = {name: "production", "AGENTRUN_NOT_SECRET": name}
    found = find_credentials(environment, keys={"ROUTE_KEY"})
    assert [value.reveal() for _, value in found] == ["production"]
    assert removed_names(environment, {"ROUTE_KEY"}) == set()


def test_short_values_are_named() -> None:
    environment = {"DB_PASS": "7 chars", "SHOP_KEY": "8 chars.", "TOKEN_TTL": "3600", "PLACE": "here", "PIN": "1234"}
    assert short_credentials(environment) == ["DB_PASS"]
    assert short_credentials(environment, {"PIN"}) == ["DB_PASS", "PIN"]
    assert short_credentials({"PIN": "unused", "DB_PASS": "none"}, {"PIN"}) == []
    assert short_credentials({**environment, "DB_PASS": "", "AGENTRUN_NOT_SECRET": "PIN"}, {"PIN"}) == []


def test_process_hides_nothing_until_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "tulip-garden")
    monkeypatch.setenv("TEAM", "blue-team-of-nine")
    hidden, text = HiddenSecrets(), "tulip-garden blue-team-of-nine"
    assert hidden.redactor.redact_text(text) == text
    hidden.read_environment()
    assert hidden.redactor.redact_text(text) == "[redacted:SHOP_TOKEN] blue-team-of-nine"
    hidden.read_environment(lambda: ["TEAM"])
    assert hidden.redactor.redact_text(text) == "[redacted:SHOP_TOKEN] [redacted:TEAM]"
    hidden.ignore_environment()
    assert hidden.redactor.redact_text(text) == text
