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
from agentrun.spec.tree import DocumentPath, MappingNode, plain_data
from agentrun.spec.v1.provider import ProviderFile, ScriptedUsage
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
        path = DocumentPath(root, ("turns", index))
        if all(path.at(key).node is None for key in REPLY_KEYS):
            yield path.problem("spec.missing_key", "this turn has no reply", 'for an empty reply write text: ""')
        if isinstance(turn.usage, ScriptedUsage):
            yield from _check_usage(path.at("usage"), turn.usage)
        for number, call in enumerate(turn.calls):
            if call.args and call.raw is not UNSET:
                message = "the call has both `args` and `raw`"
                yield path.at("calls", number, "raw").key_problem("spec.given_twice", message, "remove one of the two")


def _check_usage(path: DocumentPath, usage: ScriptedUsage) -> Iterator[Problem]:
    for part, whole, most in (("cached", "input", usage.input), ("reasoning", "output", usage.output)):
        if getattr(usage, part) > most:
            message = f"{part} tokens cannot be more than the {whole} tokens ({most})"
            yield path.at(part).problem("spec.out_of_range", message)
