"""Secrets are not printed, and literal credentials are found by shape with few false alarms."""

import copy
import json
import pickle
import random
import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.secret import MASK, Secret, enc_hook, find_secrets, mask, mask_spans, names_credential

from .steps import at_most, no_hang

VALUE = "hunter2-and-more"
_random = random.Random(7)  # noqa: S311  made-up keys, the same in every run


def body(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_random.choice(alphabet) for _ in range(length - 2)) + "a1"


LITERALS = {
    "openai key": ["sk-" + body(48), "sk-proj-" + body(60), "sk-or-v1-" + body(64, "0123456789abcdef")],
    "anthropic key": ["sk-ant-" + "api03-" + body(80)],
    "google key": ["AIza" + body(35)],
    "aws key id": ["AKIA" + "Z7" * 8],
    "github token": ["ghp_" + body(36), "github_pat_" + body(22) + "_" + body(59)],
    "gitlab token": ["glpat-" + body(20)],
    "slack token": ["xoxb-" + "12345678901-" + body(24)],
    "stripe key": ["sk_live_" + body(24), "rk_test_" + body(24)],
    "npm token": ["npm_" + body(36)],
    "hugging face token": ["hf_" + body(34)],
    "service key": ["gsk_" + body(52), "tvly-" + body(32)],
    "json web token": ["eyJ" + body(20) + ".eyJ" + body(40) + "." + body(43)],
    "private key": ["-----BEGIN RSA PRIVATE " + "KEY-----\n" + body(64) + "\n-----END RSA PRIVATE KEY-----"],
}
ALL = [(kind, literal) for kind, literals in LITERALS.items() for literal in literals]


class TestSecret:
    def test_secret_is_shown_only_by_reveal(self) -> None:
        secret = Secret(VALUE)
        shown = [repr(secret), str(secret), f"{secret}", f"{secret:>40}", f"{secret!r}", str([secret])]
        shown += [template % secret for template in ("%s", "%r", "%20s")]
        assert secret.reveal() == VALUE
        assert not [text for text in shown if VALUE in text]
        assert f"{secret}" == MASK

    def test_secret_is_encoded_as_a_mask_and_cannot_be_pickled(self) -> None:
        secret = Secret(VALUE)
        assert msgspec.json.encode({"key": secret}, enc_hook=enc_hook) == b'{"key":"***"}'
        assert json.dumps(secret, default=enc_hook) == '"***"'
        for encode in (msgspec.json.encode, json.dumps, pickle.dumps):
            with pytest.raises(TypeError) as refused:
                encode(secret)
            assert VALUE not in str(refused.value)
        with pytest.raises(TypeError):
            secret.__getstate__()
        with pytest.raises(NotImplementedError):
            enc_hook(object())

    def test_copies_stay_secret(self) -> None:
        secret = Secret(VALUE)
        assert copy.copy(secret) is secret
        assert copy.deepcopy([secret])[0] is secret

    def test_secret_is_immutable(self) -> None:
        secret = Secret(VALUE)
        with pytest.raises(AttributeError):
            secret.other = 1
        with pytest.raises(AttributeError):
            del secret._value
        assert not hasattr(secret, "__dict__")

    def test_secrets_are_equal_by_value_and_hashed_by_identity(self) -> None:
        one, same, other = Secret(VALUE), Secret(VALUE), Secret("\udc80")
        assert one == same
        assert one != other
        assert one != VALUE
        assert len({one, same}) == 2  # by identity


class TestShapes:
    @pytest.mark.parametrize(("kind", "literal"), ALL)
    def test_found_alone_and_in_text(self, kind: str, literal: str) -> None:
        for before, after in [("", ""), ("use ", " here"), ('"', '"'), ("key=", ";"), ("é\U0001f600 ", "\n")]:
            text = before + literal + after
            assert find_secrets(text) == [(len(before), len(before) + len(literal), kind)]
            assert mask(text) == before + MASK + after

    def test_bearer_tokens_and_url_passwords_are_found(self) -> None:
        token = body(32)
        assert mask(f"Authorization: Bearer {token}") == "Authorization: Bearer ***"
        assert find_secrets(f"bearer {token}") == [(7, 39, "bearer token")]
        assert mask("postgres://app:s3cr3tPw@db:5432/x") == "postgres://app:***@db:5432/x"
        assert find_secrets("postgres://app:s3cr3tPw@db/x") == [(15, 23, "password in a url")]

    def test_several_are_in_order(self) -> None:
        text = " ".join(literal for _, literal in ALL)
        assert [text[start:end] for start, end, _ in find_secrets(text)] == [literal for _, literal in ALL]

    @pytest.mark.parametrize(
        "text",
        [
            "You are a helpful assistant. Ask for the task-id before you answer; risk-free, desk-bound.",
            "550e8400-e29b-41d4-a716-446655440000",
            "9fceb02d0ae598e95dc970b74767f19372d61af8",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "anthropic/claude-haiku-4-5-20251001",
            "gpt-4.1-mini-2025-04-14",
            "https://api.openai.com/v1/chat/completions",
            "https://shop.example/orders/{{ args.id }}?x=1#a@b",
            "git@github.com:team/repository.git",
            "mailto:someone@example.com, see http://host:8080/path@2",
            "${OPENAI_API_KEY}",
            "Bearer ${API_TOKEN_FOR_THE_SHOP_SERVICE}",
            "Bearer {{ token }}",
            "https://user:${PASSWORD}@host/",
            "https://user:password@host/",
            "https://user:<password>@host/",
            "sk-your-key-here-xxxxxxxxxxxxxxxxxxxxxxxx1",
            "sk-folding-cube-animation-with-a-long-name",
            "AKIA" + "IOSFODNN7EXAMPLE",
            "npm_config_registry hf_hub_download_timeout",
            "The bearer of this message is trustworthy and internationalisation-friendly.",
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        ],
    )
    def test_no_false_alarm(self, text: str) -> None:
        assert find_secrets(text) == []
        assert find_secrets(text, "instructions") == []


class TestUnderAKey:
    @pytest.mark.parametrize(
        "key",
        [
            "api_key",
            "apiKey",
            "apikey",
            "token",
            "access_token",
            "client_secret",
            "password",
            "Authorization",
            "x-api-key",
            "X-Api-Key",
            "auth.token",
            "clientSecret",
            "private_key",
            "Cookie",
            "db_passwd",
        ],
    )
    def test_value_under_a_credential_key_is_found(self, key: str) -> None:
        assert names_credential(key)
        assert find_secrets("aB3dE6gH9jK2", key) == [(0, 12, "credential")]

    @pytest.mark.parametrize(
        "key",
        [
            "tokens",
            "max_tokens",
            "token_limit",
            "secret_name",
            "token_url",
            "key",
            "name",
            "monkey",
            "public_key",
            "turns",
        ],
    )
    def test_value_under_another_key_is_not_found(self, key: str) -> None:
        assert not names_credential(key)
        assert find_secrets("aB3dE6gH9jK2", key) == []

    @pytest.mark.parametrize(
        "value",
        [
            "550e8400-e29b-41d4-a716-446655440000",
            "Tr0ub4dor&3",
            "9fceb02d0ae598e95dc970b74767f19372d61af8",
            "qwxzkjvbplmtrdfgyhnc",
            " aB3dE6gH9jK2 ",
            "Basic dXNlcjpwYXNzd29yZA==",
            "Bearer aB3dE6gH9jK2",
        ],
    )
    def test_random_value_under_a_credential_key_is_found(self, value: str) -> None:
        ((start, end, kind),) = find_secrets(value, "token")
        assert kind == "credential"
        assert value[start:end] == value.rsplit(maxsplit=1)[-1]

    @pytest.mark.parametrize(
        "value",
        [
            "${TOKEN_4711x9}",
            "$TOKEN9x8y7z6",
            "{{ token9x8y7z6 }}",
            "Bearer ${X1y2z3w4}",
            "OPENAI_API_KEY",
            "oauth2",
            "aws4-hmac-sha256",
            "<your token 123>",
            "changeme123456",
            "xxxxxxxx1234",
            "search_token",
            "a 1b2 c3d4e5",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4",
            "aB3dE6g",
            "aaaaaaaaaaaaaaaa1b",
            "",
            "env:OPENAI_KEY",
        ],
    )
    def test_harmless_value_under_a_credential_key_is_not_found(self, value: str) -> None:
        assert find_secrets(value, "token") == []


class TestMask:
    def test_mask_hides_values_after_credential_keys(self) -> None:
        assert mask("api_key: hunter2") == "api_key: ***"
        assert mask('{"password": "Tr0ub4dor&3", "n": 1}') == '{"password": "***", "n": 1}'
        assert mask("token=abc123def&x=1") == "token=***"
        assert mask("tokens: 50000 name: support") == "tokens: 50000 name: support"
        assert mask("token: ${SHOP_TOKEN}") == "token: ${SHOP_TOKEN}"

    def test_leaves_plain_text_alone(self) -> None:
        assert mask("") == ""
        assert mask("tool 'serch' is not declared") == "tool 'serch' is not declared"

    def test_mask_hides_a_private_key_without_an_end(self) -> None:
        text = "-----BEGIN PRIVATE " + "KEY-----\n" + body(64) + "\n" + body(64)
        assert mask(text + "\nname: x") == "***\nname: x"

    @given(st.text())
    def test_mask_does_not_grow_a_text_beyond_its_spans(self, text: str) -> None:
        assert len(mask(text)) <= len(text) + 3 * len(mask_spans(text))

    @given(st.text(max_size=20), st.sampled_from(ALL), st.text(max_size=20))
    def test_no_literal_is_left(self, before: str, literal: tuple[str, str], after: str) -> None:
        assert literal[1] not in mask(f"{before} {literal[1]} {after}")

    @pytest.mark.parametrize(
        "piece",
        [
            "eyJ",
            "eyJaaaaaaaaaa.",
            "-----BEGIN PRIVATE " + "KEY-----",
            "sk-a1",
            "sk-" + "a1" * 10 + " ",
            "://a:b@",
            "://a:",
            "token: aaaaa1 ",
            "token",
            "bearer ",
            "a",
            "ab-",
            "é",
            "\ud800",
            "SG.aaaaaaaaaaaaaaaaa.",
        ],
    )
    def test_a_megabyte_is_linear(self, piece: str) -> None:
        text = piece * (1024 * 1024 // len(piece.encode("utf-8", "surrogatepass")))
        with no_hang():  # a pattern that is not linear takes minutes
            mask(text)
            find_secrets(text, "token")
        with at_most(2_000_000):
            mask(text[: len(text) // 16])
            find_secrets(text[: len(text) // 16], "token")

    def test_mask_hides_thousands_of_keys(self) -> None:
        text = ("sk-" + body(20) + " ") * 3000
        assert mask_spans(text)[-1][1] == len(text)
        assert "sk-" not in mask(text)
