"""Read and check the scripts of `agentrun provider`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import UNSET

from agentrun.spec.document_loader import load_document
from agentrun.spec.problems import DocumentError, Problem, Source
from agentrun.spec.project import project_root
from agentrun.spec.source_files import read_source
from agentrun.spec.tree import MappingNode, node_at, place_at_path, plain_data
from agentrun.spec.v1.provider import ProviderFile, ScriptedTurn, ScriptedUsage
from agentrun.spec.yaml_parser import MAX_PROBLEMS

REPLY_KEYS = ("text", "calls", "refusal", "reasoning")


def read_script(path: Path) -> ProviderFile:
    """Read a script. Raises DocumentError with all its problems."""
    return parse_script(read_source(path, root=project_root(path)))


def parse_script(source: Source) -> ProviderFile:
    """Parse a script. Raises DocumentError with all its problems."""
    document = load_document(source, "provider")
    if document.root is None or document.problems:
        raise DocumentError(document.problems)
    script = msgspec.convert(plain_data(document.root), ProviderFile)
    if problems := list(islice(_check_script(document.root, script), MAX_PROBLEMS)):
        raise DocumentError(problems)
    return script


def _check_script(root: MappingNode, script: ProviderFile) -> Iterator[Problem]:
    for index, turn in enumerate(script.turns):
        path = ("turns", index)
        if not any(node_at(root, (*path, key)) is not None for key in REPLY_KEYS):
            hint = 'for an empty reply write text: ""'
            yield Problem(place_at_path(root, path), "spec.missing_key", "this turn has no reply", hint)
        yield from _check_usage(root, path, turn)
        for number, call in enumerate(turn.calls):
            if call.args and call.raw is not UNSET:
                place = place_at_path(root, (*path, "calls", number, "raw"), key=True)
                yield Problem(place, "spec.given_twice", "the call has both `args` and `raw`", "remove one of the two")


def _check_usage(root: MappingNode, path: tuple[str | int, ...], turn: ScriptedTurn) -> Iterator[Problem]:
    if not isinstance(turn.usage, ScriptedUsage):
        return
    usage = turn.usage
    for part, whole, most in (("cached", "input", usage.input), ("reasoning", "output", usage.output)):
        if getattr(usage, part) > most:
            message = f"{part} tokens cannot be more than the {whole} tokens ({most})"
            yield Problem(place_at_path(root, (*path, "usage", part)), "spec.out_of_range", message)
