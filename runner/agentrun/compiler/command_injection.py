"""Find arguments of a command through which the model could run code.

Rule 1  A template in a shell command line is an error: `["sh", "-c", "ls {{ args.x }}"]` runs what the model writes.
Rule 2  A template for code of another interpreter, or for the name of a program, is a warning.
Rule 3  Only common programs are known, as a help for authors. The tool itself ensures at run time that a value that is
        filled in does not become an option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from agentrun.compiler.template import is_template

InjectionRisk: TypeAlias = Literal["line", "code"]
"""A part of a shell command line; code, or the name of a program."""

_SHELLS = frozenset(["ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "pwsh", "sh", "tcsh", "zsh"])
_RUNNERS = frozenset(
    {
        *("busybox", "chroot", "command", "doas", "env", "exec", "flock", "ionice", "nice", "nohup", "npx", "parallel"),
        *("pipx", "setsid", "stdbuf", "sudo", "taskset", "time", "timeout", "unshare", "uvx", "watch", "xargs"),
    }
)
"""Programs that run the command in their arguments."""
_CODE_OPTIONS: dict[str, tuple[str, ...]] = {
    "bun": ("-e", "--eval"),
    "deno": ("eval",),
    "find": ("-exec", "-execdir", "-ok", "-okdir"),
    "git": ("-c", "--config-env", "--exec-path"),
    "lua": ("-e",),
    "node": ("-e", "--eval", "-p", "--print"),
    "perl": ("-e", "-E"),
    "php": ("-r",),
    "python": ("-c",),
    "rsync": ("-e", "--rsh"),
    "ruby": ("-e",),
    "tar": ("-I", "--checkpoint-action", "--to-command", "--use-compress-program"),
}
"""Options that are followed by code or by a program."""
_RUN_FILES = frozenset(["bun", "deno", "lua", "node", "perl", "php", "python", "ruby"]) | _SHELLS
"""Programs that run the file in their first argument."""
_CODE_IS_FIRST = frozenset(["awk", "gawk", "mawk", "nawk", "sed"])
_SSH_VALUES = frozenset(f"-{letter}" for letter in "BbcDEeFIiJLlmOopQRSWw")
_OPTION = re.compile(r"-|[A-Za-z_]\w*=|[0-9.]+[a-z]?$")


def find_injection_risks(argv: Sequence[str]) -> Iterator[tuple[int, InjectionRisk]]:
    """Yield the index of each template that is run, with its risk."""
    at = 0
    while at < len(argv) and _program_name(argv[at]) in _RUNNERS:
        # The command is the first word that is not an option or a value.
        at = next((here for here in range(at + 1, len(argv)) if not _OPTION.match(argv[here])), len(argv))
    if at and at < len(argv) and is_template(argv[at]):
        yield at, "code"
    elif at < len(argv):
        yield from ((at + index, risk) for index, risk in _program_risks(_program_name(argv[at]), argv[at:]))


def _program_risks(name: str, argv: Sequence[str]) -> Iterator[tuple[int, InjectionRisk]]:
    words = [index for index in range(1, len(argv)) if not argv[index].startswith("-")]
    options = [each for each in argv[1 : words[0] if words else None] if not is_template(each)]
    first = words[:1]
    if name in _SHELLS and any(re.fullmatch(r"-[a-zA-Z]*c|-Command", option) for option in options):
        yield from ((index, "line") for index in first if is_template(argv[index]))
    elif name == "ssh":
        plain = [index for index in words if argv[index - 1] not in _SSH_VALUES]
        yield from ((index, "line") for index in plain[1:] if is_template(argv[index]))
    elif name in _CODE_OPTIONS and (
        found := [index for index in range(1, len(argv)) if _is_code(_CODE_OPTIONS[name], argv, index)]
    ):
        yield from ((index, "code") for index in found)
    elif name in _CODE_IS_FIRST or (
        name in _RUN_FILES and not any(each in _CODE_OPTIONS.get(name, ()) for each in options)
    ):
        yield from ((index, "code") for index in first if is_template(argv[index]))


def _is_code(options: tuple[str, ...], argv: Sequence[str], index: int) -> bool:
    element = argv[index]
    joined = any(element.startswith(option if len(option) == 2 else f"{option}=") for option in options)
    return is_template(element) and (joined or argv[index - 1] in options)


def _program_name(command: str) -> str:
    return re.sub(r"[0-9.]+$", "", command.rpartition("/")[2])
