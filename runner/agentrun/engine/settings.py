"""Settings of live runs, from environment variables.

Rule 1  An empty variable counts as not set. Names are case-sensitive.
Rule 2  The environment takes precedence over a file with variables.
Rule 3  A value is a secret from the moment it is read. An error contains the name of a variable but never its
        value, and its traceback has no frame that had access to the value.
Rule 4  Commands that replay do not import this module, because it takes half a second. What they read
        (`AGENTRUN_MODE` and others) is listed here too, and a test compares names and defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Never, TypeAlias, get_args

from pydantic import AliasChoices, BeforeValidator, Field, PrivateAttr, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from agentrun.credentials import NOT_SECRET_VARIABLE, removed_names
from agentrun.engine.env_file import ENV_FILE, EnvFile
from agentrun.errors import HostError
from agentrun.journal.storage import SyncMode
from agentrun.secret import Secret

_Text = Annotated[SecretStr, BeforeValidator(lambda text: text.strip())]
"""Addresses are hidden too, because they can contain a password."""


def _setting(*names: str, default: Any = None, description: str) -> Any:
    return Field(default, validation_alias=AliasChoices(*names), description=description)


RunModeName: TypeAlias = Literal["auto", "live", "record", "replay"]


class Settings(BaseSettings):
    """The environment variables that agentrun reads."""

    model_config = SettingsConfigDict(
        case_sensitive=True, env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    openai_api_key: _Text | None = _setting(
        "OPENAI_API_KEY", description="API key of the providers `openai` and `openai-responses`."
    )
    anthropic_api_key: _Text | None = _setting("ANTHROPIC_API_KEY", description="API key of the provider `anthropic`.")
    gemini_api_key: _Text | None = _setting("GEMINI_API_KEY", description="API key of the provider `gemini`.")
    openai_base_url: _Text | None = _setting(
        "OPENAI_BASE_URL", description="Address to use instead of `https://api.openai.com/v1`."
    )
    anthropic_base_url: _Text | None = _setting(
        "ANTHROPIC_BASE_URL", description="Address to use instead of `https://api.anthropic.com`."
    )
    gemini_base_url: _Text | None = _setting(
        "GOOGLE_GEMINI_BASE_URL",
        description="Address to use instead of `https://generativelanguage.googleapis.com`.",
    )
    trust_env: bool = _setting(
        "AGENTRUN_TRUST_ENV",
        default=False,
        description="Use the proxies and certificates below. Requests of tools use no proxy.",
    )
    http_proxy: _Text | None = _setting("http_proxy", "HTTP_PROXY", description="Proxy for `http://` addresses.")
    https_proxy: _Text | None = _setting("https_proxy", "HTTPS_PROXY", description="Proxy for `https://` addresses.")
    all_proxy: _Text | None = _setting("all_proxy", "ALL_PROXY", description="Proxy if no other one is set.")
    no_proxy: _Text | None = _setting("no_proxy", "NO_PROXY", description="Hosts that are reached without a proxy.")
    ssl_cert_file: Path | None = _setting(
        "SSL_CERT_FILE", description="File with the certificates of the authorities to trust."
    )
    ssl_cert_dir: Path | None = _setting(
        "SSL_CERT_DIR", description="Directory with the certificates of the authorities to trust."
    )
    mode: Annotated[RunModeName, BeforeValidator(lambda text: text if text in get_args(RunModeName) else "auto")] = (
        _setting("AGENTRUN_MODE", default="auto", description="The default of `--mode`.")
    )
    """Another value is refused where it is used: `--mode` on the command line takes precedence over it."""
    cassettes: str | None = _setting(
        "AGENTRUN_CASSETTES",
        description="Directory for cassettes, instead of that of `[tool.agentrun]`. It may be outside the project.",
    )
    store: str | None = _setting(
        "AGENTRUN_STORE",
        description="Directory of the store, instead of that of `[tool.agentrun]`. It may be outside the project. With "
        "`none`, runs are not stored.",
    )
    sync: SyncMode = _setting(
        "AGENTRUN_SYNC",
        default="effects",
        description="When journals are synced to the disk: `process` never, `effects` before and after each effect, "
        "`full` after each record.",
    )
    cassette_limit: str | None = _setting(
        "AGENTRUN_CASSETTE_LIMIT",
        description="The maximum size of a cassette, such as `64MiB`, instead of that of `[tool.agentrun]`.",
    )
    ci: str | None = _setting("CI", description="If set, and not `0` or `false`, the mode `auto` never runs live.")
    not_secret: str | None = _setting(
        "AGENTRUN_NOT_SECRET",
        description="Names of variables, with commas between them, that look like credentials and are not redacted. "
        "The keys of providers always are.",
    )
    show_traceback: str | None = _setting(
        "AGENTRUN_TRACEBACK", description="If set, a bug in agentrun prints its traceback."
    )

    _file: EnvFile = PrivateAttr(default_factory=EnvFile)
    _provider_keys: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # the interface of pydantic-settings
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # `engine/env_file.py` reads the file
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # not used
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment first, then the variables of a file, which `load_settings` gives."""
        return env_settings, init_settings

    @property
    def file(self) -> EnvFile:
        return self._file

    @property
    def headline(self) -> str:
        """What to add to the first line of a live run: variables from a file, and names that are not secret."""
        removed = ", ".join(sorted(removed_names(self.variables(), self._provider_keys)))
        shown = f"not redacted because of {NOT_SECRET_VARIABLE}: {removed}" if removed else ""
        return "; ".join(filter(None, (self._file.headline, shown)))

    def secret(self, name: str) -> Secret:
        """The value of a variable, of agentrun or of a spec. Raises `host.missing`."""
        if value := self._value(name):
            return Secret(value)
        raise _variable_error(name, "is not set", self._file.hint(name) or f"set it: export {name}=…")

    def has(self, name: str) -> bool:
        """Whether a variable is set and not empty."""
        return bool(self._value(name))

    def variables(self) -> dict[str, str]:
        """All variables with their values, for redaction."""
        return self._file.reveal_all() | dict(os.environ)

    def proxies(self) -> dict[str, str]:
        """The proxies to use, by scheme; `all` for the other schemes, and `no` with hosts that are reached directly."""
        proxies = {"http": self.http_proxy, "https": self.https_proxy, "all": self.all_proxy, "no": self.no_proxy}
        return {name: value.get_secret_value() for name, value in proxies.items() if value and self.trust_env}

    def certificates(self) -> tuple[Path | None, Path | None]:
        """The file and the directory with the authorities to trust. None: those that come with httpx."""
        return (self.ssl_cert_file, self.ssl_cert_dir) if self.trust_env else (None, None)

    def __reduce__(self) -> Never:
        raise TypeError("settings contain secrets and cannot be pickled")

    def _value(self, name: str) -> str:
        value = getattr(self, _FIELDS.get(name, ""), None)
        if isinstance(value, SecretStr):
            return value.get_secret_value()
        return (os.environ[name] if name in os.environ else self._file.value(name)).strip()


def setting_names(field: str) -> list[str]:
    """The variables of a setting. The first one that is set counts."""
    names = Settings.model_fields[field].validation_alias
    assert isinstance(names, AliasChoices)
    return [str(name) for name in names.choices]


_FIELDS = {name: field for field in Settings.model_fields for name in setting_names(field)}


def load_settings(file: EnvFile | None = None, provider_keys: Iterable[str] = ()) -> Settings:
    """The settings of the environment and of a file with variables. Raises `host.missing` if a value is invalid.
    `provider_keys`: the variables that a package uses as keys of providers."""
    file = file or EnvFile()
    try:
        variables: dict[str, Any] = {name: file.value(name) for name in file.given}
        settings = Settings(**variables)
    except ValidationError as error:
        wrong = _wrong_names(error)
    else:
        settings._file, settings._provider_keys = file, frozenset(provider_keys)  # noqa: SLF001  # no public way to set it
        return settings
    name, hint = next(iter(wrong.items()))
    raise _variable_error(name, "has a value that cannot be used", hint)


def environment_state(root: Path, env_file: Path | None) -> tuple[object, ...]:
    """Equal as long as the settings of a project are."""
    path = root / ENV_FILE if env_file is None else env_file
    try:
        found = os.stat(path)
        state = found.st_mtime_ns, found.st_size, found.st_ino
    except OSError:
        return tuple(os.environ.items())
    return (*os.environ.items(), state)


def wrong_settings() -> dict[str, str | None]:
    """The variables of the environment whose value cannot be used, each with a hint."""
    try:
        Settings()
    except ValidationError as error:
        return _wrong_names(error)
    return {}


_VALUE_HINTS = {
    "AGENTRUN_TRUST_ENV": "set it to true or false",
    "AGENTRUN_SYNC": "set it to process, effects or full",
}


def _wrong_names(error: ValidationError) -> dict[str, str | None]:
    names = [str(problem["loc"][0]) for problem in error.errors(include_input=False, include_url=False)]
    return {name: _VALUE_HINTS.get(name) for name in names}


def _variable_error(name: str, why: str, hint: str | None) -> HostError:
    return HostError("host.missing", f"{name} {why}", hint=hint, fields={"name": name, "what": "variable"})
