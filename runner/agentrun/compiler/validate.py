"""Validate the document at a path: a spec, a shared part, cases, a script, a package, or a directory of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import UNSET

from agentrun.compiler.cases import CASES_FILE_SUFFIX, read_cases_file, spec_path
from agentrun.compiler.compile import validate_spec
from agentrun.compiler.lint_cases import lint_cases
from agentrun.compiler.lint_texts import MAX_SECRETS, secrets_in_node, secrets_in_source
from agentrun.compiler.package_file import read_package
from agentrun.compiler.spec_reader import read_spec
from agentrun.errors import PackageError
from agentrun.spec.document_loader import load_document
from agentrun.spec.problems import DocumentError, Problem, Source, SourcePlace, sort_problems
from agentrun.spec.project import project_root
from agentrun.spec.source_files import display_path, read_source, walk_folders
from agentrun.spec.tree import DocumentPath, MappingNode, plain_data
from agentrun.spec.v1.agent import SHARED_KEYS
from agentrun.spec.v1.provider import ProviderFile, ScriptedUsage
from agentrun.spec.yaml_parser import MAX_PROBLEMS

_TOP_KEY = re.compile(r"^[\"']?([A-Za-z_][\w-]*)[\"']?[ ]*:", re.MULTILINE)
_AGENTRUN_KEY = re.compile(r"^[ {]*[\"']?agentrun[\"']?[ ]*:", re.MULTILINE)
_ENDINGS = (".yaml", ".yml")
_REPLY_KEYS = ("text", "calls", "refusal", "reasoning")


def find_documents(path: Path) -> Iterator[Path]:
    """Yield the path itself, or all agentrun documents below a directory."""
    if not path.is_dir():
        yield path
        return
    for folder, names in walk_folders(path, lambda folder: folder.name == "cassettes"):
        for name in names:
            found = folder / name
            is_yaml = found.suffix in _ENDINGS and not name.startswith(".") and found.is_file()
            if is_yaml and _is_agentrun_document(found):
                yield found


def _is_agentrun_document(path: Path) -> bool:
    try:
        text = read_source(path).text
    except DocumentError:
        return True  # an unreadable file is reported, not skipped
    return path.name.endswith(CASES_FILE_SUFFIX) or _AGENTRUN_KEY.search(text) is not None


def validate_document(path: Path) -> list[Problem]:
    try:
        return sort_problems(_problems(path))
    except DocumentError as error:
        return error.problems
    except PackageError as error:
        place = SourcePlace(Source(path.absolute(), display_path(path), ""), 1, 1)
        return [Problem(place, error.code, error.message, error.hint)]


def _problems(path: Path) -> Iterable[Problem]:
    if path.suffix == ".json":
        read_package(path)
        return ()
    if path.name.endswith(CASES_FILE_SUFFIX):
        return _cases(path)
    kind = document_kind(path)
    if kind != "provider" and kind not in SHARED_KEYS:
        return validate_spec(path)
    source = read_source(path, root=project_root(path))
    if kind == "provider":
        parse_script(source)
        return islice(secrets_in_source(source), MAX_SECRETS)
    document = load_document(source, kind)
    return [*document.problems, *_secrets(source, document.root)]


def document_kind(path: Path) -> str:
    """Return the kind of a document. A script has `turns`, and a shared part has only one key."""
    try:
        text = read_source(path).text
    except DocumentError:
        return "agent"
    keys = {match[1] for match in _TOP_KEY.finditer(text)} - {"agentrun"}
    if "turns" in keys:
        return "provider"
    return keys.pop() if len(keys) == 1 else "agent"


def _secrets(source: Source, root: MappingNode | None) -> Iterator[Problem]:
    if root is not None:
        yield from islice(secrets_in_node(root), MAX_SECRETS)
    yield from islice(secrets_in_source(source), MAX_SECRETS)


def _cases(path: Path) -> Iterator[Problem]:
    root, file = read_cases_file(path)
    yield from _secrets(root.place.source, root)
    beside = spec_path(path)
    if beside.exists():
        yield from islice(lint_cases(root, file, read_spec(beside).spec), MAX_PROBLEMS)
    else:
        message = f"there is no {beside.name} next to this file"
        hint = "a cases file must be next to its spec: name.cases.yaml and name.yaml"
        yield Problem(SourcePlace(root.place.source, 1, 1), "spec.no_spec", message, hint)


# --- scripts of `agentrun provider` -------------------------------------------------------------------------------


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
        if all(path.at(key).node is None for key in _REPLY_KEYS):
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
