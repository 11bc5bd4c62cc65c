"""Settings from the environment: credentials, addresses and options of live runs.

Rule 1  A variable is read when it is needed, by its exact name. An empty variable counts as not set.
Rule 2  A file with variables is read only if the user names it. The environment takes precedence.
Rule 3  A value is a `Secret` from the moment it is read. An error contains the name of a variable but never its
        value, and its traceback has no frame that had access to the value.

Importing this module takes half a second, so only live runs do.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from dotenv import dotenv_values
from pydantic import BeforeValidator, Field, ValidationError, create_model
from pydantic_settings import BaseSettings, SettingsConfigDict

from agentrun.errors import HostError
from agentrun.secret import Secret

TRUST_ENV_VARIABLE = "AGENTRUN_TRUST_ENV"
_Value = Annotated[Secret, BeforeValidator(lambda text: Secret(text.strip()))]


class _Variables(BaseSettings):
    model_config = SettingsConfigDict(
        arbitrary_types_allowed=True,
        case_sensitive=True,
        env_ignore_empty=True,
        extra="ignore",
        hide_input_in_errors=True,
    )


class Settings:
    """The environment variables of this process, and of a file."""

    def __init__(self, env_file: Path | None = None) -> None:
        """Raises `host.missing` if the file does not exist or a variable of agentrun has an invalid value."""
        if env_file is not None and not env_file.is_file():
            raise HostError("host.missing", f"there is no file {env_file}", fields={"name": str(env_file)})
        self._file = env_file
        self._secrets: dict[str, Secret] = {}
        trusted = self._read(TRUST_ENV_VARIABLE, bool)
        if isinstance(trusted, HostError):
            raise trusted
        self.trust_env = bool(trusted)
        """Whether to use the proxies and certificates that the environment names."""

    def secret(self, name: str) -> Secret:
        """The value of a variable. Raises `host.missing`."""
        if name not in self._secrets:
            value = self._read(name, _Value)
            if value is None or (isinstance(value, Secret) and not value.reveal()):
                value = _variable_error(name, "is not set", f"set it in the environment: export {name}=…")
            if isinstance(value, HostError):
                raise value
            self._secrets[name] = value
        return self._secrets[name]

    def has(self, name: str) -> bool:
        """Whether a variable is set and not empty."""
        value = self._read(name, _Value)
        return isinstance(value, Secret) and bool(value.reveal())

    def variables(self) -> dict[str, str]:
        """All variables with their values, for redaction."""
        values = {} if self._file is None else dotenv_values(self._file, interpolate=False)
        return {name: value for name, value in values.items() if value} | dict(os.environ)

    def _read(self, name: str, kind: Any) -> Any:
        """The variable as this type, None, or an error without the value."""
        try:
            return _model(name, kind)(_env_file=self._file).value
        except ValidationError:
            hint = f"set {name} to true or false" if kind is bool else None
            return _variable_error(name, "has a value that cannot be used", hint)
        except (OSError, UnicodeError):
            return HostError("host.missing", f"{self._file} cannot be read", fields={"name": str(self._file)})


@lru_cache(maxsize=64)
def _model(name: str, kind: Any) -> Any:
    """The model of one variable. Creating one takes a millisecond, and a run reads the same few variables often."""
    return create_model("Variable", __base__=_Variables, value=(kind | None, Field(None, validation_alias=name)))


def _variable_error(name: str, why: str, hint: str | None) -> HostError:
    return HostError("host.missing", f"{name} {why}", hint=hint, fields={"name": name, "what": "variable"})
