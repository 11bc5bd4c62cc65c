"""What the environment says."""

import logging
import os
import pickle
import traceback
from pathlib import Path

import pytest

from agentrun.engine.settings import Settings
from agentrun.errors import HostError
from agentrun.secret import Secret

CANARY = "canary-of-the-settings"


def missing(settings: Settings, name: str) -> HostError:
    with pytest.raises(HostError) as caught:
        settings.secret(name)
    assert caught.value.code == "host.missing"
    return caught.value


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "_my_Own9"])
def test_any_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, CANARY)
    assert Settings().secret(name) == Secret(CANARY)


@pytest.mark.parametrize("value", ['{"a": 1}', "[1]", "null", "true", "a b", "café", "${OTHER}", "'quoted'"])
def test_a_value_is_text(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ODD", value)
    assert Settings().secret("ODD").reveal() == value


def test_spaces_around_are_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD", f"  {CANARY}\n")
    assert Settings().secret("ODD").reveal() == CANARY


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("OPENAI_API_KEY", value)
    error = missing(Settings(), "OPENAI_API_KEY")
    assert error.fields == {"name": "OPENAI_API_KEY", "what": "variable"}
    assert error.hint is not None
    assert "OPENAI_API_KEY" in error.hint
    assert error.exit_code == 2


def test_names_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("some_key", "x")
    missing(Settings(), "SOME_KEY")


def test_a_file_is_read_when_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOTH", "of the environment")
    file = tmp_path / ".env"
    file.write_text("# keys\nONLY='of the file'\nBOTH=of the file\nEMPTY=\n", encoding="utf-8")
    missing(Settings(), "ONLY")
    settings = Settings(file)
    assert settings.secret("ONLY").reveal() == "of the file"
    assert settings.secret("BOTH").reveal() == "of the environment"
    missing(settings, "EMPTY")
    assert "ONLY" not in os.environ


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="there is no file"):
        Settings(tmp_path / "none.env")
    file = tmp_path / "odd.env"
    file.write_bytes(f"KEY={CANARY}\nODD=\xff\n".encode("latin-1"))
    with pytest.raises(HostError) as caught:
        Settings(file)
    assert CANARY not in shown(caught.value)


@pytest.mark.parametrize(
    ("value", "trusted"), [(None, False), ("", False), ("0", False), ("false", False), ("1", True), ("true", True)]
)
def test_trust(monkeypatch: pytest.MonkeyPatch, value: str | None, trusted: bool) -> None:
    monkeypatch.delenv("AGENTRUN_TRUST_ENV", raising=False)
    if value is not None:
        monkeypatch.setenv("AGENTRUN_TRUST_ENV", value)
    assert Settings().trust_env is trusted


def test_a_setting_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUN_TRUST_ENV", CANARY)
    with pytest.raises(HostError) as caught:
        Settings()
    assert caught.value.fields["name"] == "AGENTRUN_TRUST_ENV"
    assert CANARY not in shown(caught.value)


def test_nothing_shows_a_value(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("KEY", CANARY)
    with caplog.at_level(logging.DEBUG):
        settings = Settings()
        secret = settings.secret("KEY")
        error = missing(settings, "NONE")
        text = f"{settings} {settings!r} {secret} {secret!r} {vars(settings)} {[secret]} {shown(error)}"
    assert CANARY not in text + caplog.text
    with pytest.raises(TypeError):
        pickle.dumps(settings)


def shown(error: BaseException) -> str:
    lines = list(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    return "\n".join([*lines, repr(error), str(vars(error)), str(error.__context__)])
