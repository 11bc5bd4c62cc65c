"""The ids of stored runs. An id is also the name of the directory of its run."""

from __future__ import annotations

import re

from agentrun.core.effect_ids import CALL_PATTERN

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_CALLS = re.compile(rf"(\.{CALL_PATTERN})+$")


def is_run_id(text: str) -> bool:
    return _RUN.fullmatch(text) is not None


def root_run(run: str) -> str:
    """The run that a user started: without the calls that started sub-agents."""
    return _CALLS.sub("", run)
