"""Python functions as hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from agentrun.core.package import Hook


def python_hooks(
    roots: Sequence[Path],
    hooks: Iterable[Hook],
    *,
    printed: Callable[[str, str], None] = lambda hook, text: None,
    clean: Callable[[str], str] = lambda text: text,
) -> dict[str, Callable[[Any], Any]]:
    """The function of each hook, by its id."""
    raise NotImplementedError
