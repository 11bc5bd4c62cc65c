"""Settings and secrets read from environment variables and env files."""

import logging
import os
import pickle
import re
import traceback
from pathlib import Path
from typing import get_args

import click
import pytest

import agentrun
from agentrun.cli.run import command as run_command
from agentrun.engine.env_file import read_env_file
from agentrun.engine.settings import Settings, load_settings, setting_names
from agentrun.errors import HostError
from agentrun.secret import Secret
from agentrun.spec.project import DIRECTORY_VARIABLES, FORMER_VARIABLES, LIMIT_VARIABLE

CANARY = "canary-of-the-settings"
PACKAGE = Path(agentrun.__file__).parent


def missing_variable_error(settings: Settings, name: str) -> HostError:
    with pytest.raises(HostError) as caught:
        settings.secret(name)
    assert caught.value.code == "host.missing"
    return caught.value


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "_my_Own9"])
def test_secret_reads_any_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, CANARY)
    assert Settings().secret(name) == Secret(CANARY)


@pytest.mark.parametrize("value", ['{"a": 1}', "[1]", "null", "true", "a b", "café", "${OTHER}", "'quoted'"])
def test_a_value_is_text(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ODD", value)
    assert Settings().secret("ODD").reveal() == value


def test_spaces_around_a_value_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD", f"  {CANARY}\n")
    assert Settings().secret("ODD").reveal() == CANARY


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_unset_or_blank_variable_is_missing(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("OPENAI_API_KEY", value)
    error = missing_variable_error(Settings(), "OPENAI_API_KEY")
    assert error.fields == {"name": "OPENAI_API_KEY", "what": "variable"}
    assert error.hint is not None
    assert "OPENAI_API_KEY" in error.hint
    assert error.exit_code == 2


def test_variable_names_are_case_sensitive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("some_key", "x")
    missing_variable_error(Settings(), "SOME_KEY")


def test_env_file_is_read_only_if_given_and_the_environment_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOTH", "of the environment")
    file = tmp_path / ".env"
    file.write_text("# keys\nONLY='of the file'\nBOTH=of the file\nEMPTY=\n", encoding="utf-8")
    missing_variable_error(Settings(), "ONLY")
    settings = load_settings(read_env_file(file))
    assert settings.secret("ONLY").reveal() == "of the file"
    assert settings.secret("BOTH").reveal() == "of the environment"
    missing_variable_error(settings, "EMPTY")
    assert "ONLY" not in os.environ


def test_unreadable_env_file_is_refused_without_showing_values(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="there is no file"):
        read_env_file(tmp_path / "none.env")
    file = tmp_path / "odd.env"
    file.write_bytes(f"KEY={CANARY}\nODD=\xff\n".encode("latin-1"))
    with pytest.raises(HostError) as caught:
        read_env_file(file)
    assert CANARY not in traceback_with_locals(caught.value)


@pytest.mark.parametrize(
    ("value", "trusted"), [(None, False), ("", False), ("0", False), ("false", False), ("1", True), ("true", True)]
)
def test_trust_env_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch, value: str | None, trusted: bool) -> None:
    monkeypatch.delenv("AGENTRUN_TRUST_ENV", raising=False)
    if value is not None:
        monkeypatch.setenv("AGENTRUN_TRUST_ENV", value)
    assert Settings().trust_env is trusted


def test_invalid_setting_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUN_TRUST_ENV", CANARY)
    with pytest.raises(HostError) as caught:
        load_settings()
    assert caught.value.fields["name"] == "AGENTRUN_TRUST_ENV"
    assert CANARY not in traceback_with_locals(caught.value)


def test_settings_show_no_secret_value(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("KEY", CANARY)
    with caplog.at_level(logging.DEBUG):
        settings = Settings()
        secret = settings.secret("KEY")
        error = missing_variable_error(settings, "NONE")
        text = f"{settings} {settings!r} {secret} {secret!r} {vars(settings)} {[secret]} {traceback_with_locals(error)}"
    assert CANARY not in text + caplog.text
    with pytest.raises(TypeError):
        pickle.dumps(settings)


def traceback_with_locals(error: BaseException) -> str:
    lines = list(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    return "\n".join([*lines, repr(error), str(vars(error)), str(error.__context__)])


def test_no_field_of_the_settings_shows_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = [field for field in Settings.model_fields if field.endswith(("key", "url", "proxy"))]
    for name in [name for field in hidden for name in setting_names(field)]:
        monkeypatch.setenv(name, f"https://user:{CANARY}@host/")
    settings = load_settings()
    assert settings.has("OPENAI_BASE_URL")
    shown = [str(settings), repr(settings), vars(settings), settings.model_dump(), settings.model_dump_json()]
    assert CANARY not in str(shown)


def test_proxies_are_used_only_if_the_environment_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://upper:1")
    monkeypatch.setenv("https_proxy", "http://lower:1")
    monkeypatch.setenv("NO_PROXY", "localhost")
    monkeypatch.delenv("AGENTRUN_TRUST_ENV", raising=False)
    assert load_settings().proxies() == {}
    monkeypatch.setenv("AGENTRUN_TRUST_ENV", "1")
    assert load_settings().proxies() == {"https": "http://lower:1", "no": "localhost"}


def test_settings_list_what_commands_read_without_them() -> None:
    """Replays do not import the settings: `click` and `find_project` read these variables."""
    mode = next(option for option in run_command.params if option.name == "mode")
    assert isinstance(mode.type, click.Choice)
    field = Settings.model_fields["mode"]
    assert setting_names("mode") == [mode.envvar]
    assert field.default == mode.default
    assert list(get_args(field.annotation)) == list(mode.type.choices)
    for name, variable in (*DIRECTORY_VARIABLES.items(), ("cassette_limit", LIMIT_VARIABLE)):
        assert setting_names(name) == [variable]


NOT_SETTINGS = {"AGENTRUN_NOW", *FORMER_VARIABLES}
"""The clock of tests, and former names."""


def test_settings_list_every_variable_in_the_source() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    found = {*re.findall(r"\"(AGENTRUN_[A-Z_]+)\"", source)} - NOT_SETTINGS
    listed = {name for field in Settings.model_fields for name in setting_names(field)}
    assert found == {name for name in listed if name.startswith("AGENTRUN_")}
