"""The file `.env` in the root of a project, which live runs read.

Rule 1  It sets only API keys of providers and variables that the spec names. It never sets a variable that changes
        where requests go or what is executed, because a repository from someone else can contain a `.env`. If it
        has an address or a setting of agentrun, the first line of the run says that it is not used.
Rule 2  Variables of the environment win, also empty ones.
Rule 3  A file that is tracked by git, a symbolic link, or owned by another user is not read.
Rule 4  A line that is not of the form NAME=value is ignored, and its number is shown. Its text may be a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping
from io import StringIO
from pathlib import Path

from dotenv.parser import parse_stream

from agentrun.credentials import NOT_SECRET_VARIABLE, PROVIDER_KEYS
from agentrun.distribution import run_git
from agentrun.errors import HostError
from agentrun.secret import Secret
from agentrun.spec.source_files import FileRefused, read_project_file

ENV_FILE = ".env"
_NEVER_GIVEN = re.compile(r"AGENTRUN_.*|PYTHON.*|(.*_)?PATH|.*_BASE_URL|(.*_)?PROXY|SSL_CERT_.*|LD_.*", re.IGNORECASE)


_NOT_USED = re.compile(r"AGENTRUN_.*|.*_BASE_URL")
"""Variables that a user may expect to work."""


class EnvFile:
    """The variables that a file sets for a live run."""

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        allowed: Iterable[str] = (),
        unread: str = "",
        wrong_line: int | None = None,
    ) -> None:
        """`allowed`: the variables that the run may use. The others are only redacted. `wrong_line`: the first line
        that is not of the form NAME=value."""
        self.values = {name: Secret(value) for name, value in (values or {}).items()}
        self.given = frozenset(name for name in allowed if name not in os.environ)
        self.unread = unread
        """Why the file was not read, as a sentence. Empty: it was read, or there is none."""
        self.warning = (
            "" if wrong_line is None else f"line {wrong_line} of {ENV_FILE} is not NAME=value and was ignored"
        )

    @property
    def headline(self) -> str:
        """What to add to the first line of a live run."""
        given = f"{', '.join(sorted(self.given))} from {ENV_FILE}" if self.given else ""
        others = sorted({name for name in self.values if _NOT_USED.fullmatch(name)} - self.given - os.environ.keys())
        not_used = f"not used from {ENV_FILE}: {', '.join(others)} (export it instead)" if others else ""
        return "; ".join(filter(None, (given, not_used, self.warning))) or self.unread

    def value(self, name: str) -> str:
        """The value that the file sets for a variable, or an empty text."""
        return self.values[name].reveal() if name in self.given else ""

    def reveal_all(self) -> dict[str, str]:
        """All variables, for redaction. Only the environment says which of them are not secret."""
        return {name: value.reveal() for name, value in self.values.items() if name != NOT_SECRET_VARIABLE}

    def hint(self, name: str) -> str:
        """Why a variable that is not set does not come from the file, or an empty text."""
        if name in self.values and name in os.environ:
            return f"{name} is empty in the environment, which takes precedence over {ENV_FILE}: run unset {name}"
        if name in self.values:
            return f"{ENV_FILE} cannot set {name}: export {name}=…"
        return self.unread or self.warning


def read_project_env_file(root: Path, named: Container[str]) -> EnvFile:
    """Read the `.env` of a project. `named`: the variables that the spec names."""
    path = root / ENV_FILE
    if not os.path.lexists(path) or path.is_dir():  # a virtual environment may have this name
        return EnvFile()
    if reason := _refusal(path):
        return EnvFile(unread=f"{ENV_FILE} was not read because {reason}")
    try:
        values, wrong_line = _parse(read_project_file(root, root, ENV_FILE).text)
    except FileRefused as refused:
        return EnvFile(unread=f"{ENV_FILE} was not read: {refused.message}")
    allowed = (name for name in values if (name in PROVIDER_KEYS or name in named) and not _NEVER_GIVEN.fullmatch(name))
    return EnvFile(values, allowed, wrong_line=wrong_line)


def read_env_file(path: Path) -> EnvFile:
    """Read a file that the caller named. All its variables are set. A wrong line raises `host.missing`."""
    if not path.is_file():
        raise HostError("host.missing", f"there is no file {path}", fields={"name": str(path)})
    try:
        values, wrong_line = _parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError):
        raise HostError("host.missing", f"{path} cannot be read", fields={"name": str(path)}) from None
    if wrong_line is not None:
        message = f"line {wrong_line} of {path} is not of the form NAME=value"
        raise HostError("host.missing", message, fields={"name": str(path)})
    return EnvFile(values, values)


def _parse(text: str) -> tuple[dict[str, str], int | None]:
    """The variables, and the first line that is wrong. python-dotenv's own function would log it."""
    found = list(parse_stream(StringIO(text)))
    values = {one.key: one.value.strip() for one in found if one.key and one.value}
    wrong = next((one for one in found if one.error), None)
    skipped = 0 if wrong is None else len(wrong.original.string) - len(wrong.original.string.lstrip())
    line = None if wrong is None else wrong.original.line + wrong.original.string[:skipped].count("\n")
    return {name: value for name, value in values.items() if value}, line


def _refusal(path: Path) -> str:
    """Why a file is not read, or an empty text."""
    if path.is_symlink():
        return "it is a symbolic link: replace it by a file"
    if path.stat().st_uid != os.geteuid():
        return "it belongs to another user"
    if not any(os.path.lexists(folder / ".git") for folder in path.parents):
        return ""
    code, _ = run_git(path.parent, "ls-files", "--error-unmatch", "--", path.name)
    if code == 0:
        return f"git tracks it: run git rm --cached {path.name}, add it to .gitignore and replace the keys in it"
    return "" if code == 1 else "git cannot say whether it is tracked: run git status"
