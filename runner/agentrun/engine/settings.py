"""What the environment says: credentials, addresses, and how live runs behave.

Rule 1  A variable is read when it is asked for, by its exact name. One that is empty is not set.
Rule 2  A file of variables is read only when it is named; the environment wins over it.
Rule 3  A value is a `Secret` from the moment it is read. An error says the name of a variable and not a word of its
        value, and no frame that has seen a value is in its traceback.

Importing this takes half a second: only what goes live does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, TypeVar

from dotenv import dotenv_values
from pydantic import BeforeValidator, Field, ValidationError, create_model
from pydantic_settings import BaseSettings, SettingsConfigDict

from agentrun.errors import HostError
from agentrun.secret import Secret

_T = TypeVar("_T")
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
    """The variables of this process, and of a file if one is named."""

    def __init__(self, env_file: Path | None = None) -> None:
        """Raises `host.missing` when the file is not there, or a setting of ours is none."""
        if env_file is not None and not env_file.is_file():
            raise HostError("host.missing", f"there is no file {env_file}", fields={"name": str(env_file)})
        self._file = env_file
        self._secrets: dict[str, Secret] = {}
        trusted = self._read(TRUST_ENV_VARIABLE, bool)
        if isinstance(trusted, HostError):
            raise trusted
        self.trust_env = bool(trusted)
        """Whether the proxies and certificates are used that the environment names."""

    def secret(self, name: str) -> Secret:
        """The value of a variable. Raises `host.missing`."""
        if name not in self._secrets:
            found = self._read(name, _Value)
            if found is None or (isinstance(found, Secret) and not found.reveal()):
                found = _variable_error(name, "is not set", f"set it in the environment: export {name}=…")
            if isinstance(found, HostError):
                raise found
            self._secrets[name] = found
        return self._secrets[name]

    def has(self, name: str) -> bool:
        """Whether a variable is set to something."""
        found = self._read(name, _Value)
        return isinstance(found, Secret) and bool(found.reveal())

    def variables(self) -> dict[str, str]:
        """All of them, as they are: for whoever has to know what must not be shown."""
        values = {} if self._file is None else dotenv_values(self._file, interpolate=False)
        return {name: value for name, value in values.items() if value} | dict(os.environ)

    def _read(self, name: str, kind: Any) -> Any:
        """The variable as that kind, None, or an error that has seen nothing."""
        model = create_model("Variable", __base__=_Variables, value=(kind | None, Field(None, validation_alias=name)))
        try:
            return model(_env_file=self._file).value  # type: ignore[call-arg,attr-defined]  # made just now
        except ValidationError:
            return _variable_error(name, "has a value that cannot be used", "true or false" if kind is bool else None)
        except (OSError, UnicodeError):
            return HostError("host.missing", f"{self._file} cannot be read", fields={"name": str(self._file)})


def _variable_error(name: str, why: str, hint: str | None) -> HostError:
    return HostError("host.missing", f"{name} {why}", hint=hint, fields={"name": name, "what": "variable"})
