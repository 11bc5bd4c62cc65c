"""Forbidden words are in no text that users read.

Checked are the help of every command, the descriptions in JSON Schemas, the pages, the files that `agentrun init`
writes, comments and descriptions of the example agents, the Makefile and other settings, and the messages: string
literals in `runner/agentrun`. Docstrings and comments of the code are checked too.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from agentrun.cli.group import root_command
from agentrun.compiler.schema_files import SCHEMA_NAMES, schema_text

from .terminal import ROOT

PACKAGE = ROOT / "runner" / "agentrun"

FORBIDDEN_WORDS: dict[str, str] = {
    r"tells?|telling|told": "show, print, report, explain",
    r"stands(?! for)|stand (?:in|at|beside|there|here)": "is, are",
    r"whoever": "anyone who, the caller",
    r"nobody": "no one, there is no …",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"lain|laid (?:over|on|upon)|lay (?:over|it over)": "injected, applied",
    r"(?:is|are|all|not) well": "passes, is correct",
    r"must hold": "must be true, is required",
    r"tapes?": "cassette",
    r"anew": "again",
    r"(?:un)?claim(?:s|ed)?|complaints?": "assertion, failure",
    r"keepers?": "supervisor",
    r"dear(?:er|est)?": "expensive, high",
    r"grows? over": "is longer than",
    r"words and signs": "tokens",
    r"written down": "written as JSON",
    r"also (?:if|when|after|through|not|those|an?)": "even if, including",
    r", also (?:as|at|by|for|from|in(?:side)?|of|on|the|to|under|while|with(?:out)?)": "including, and so does, even",
    r"without a question": "without asking",
    r"(?:another \w+|something else) than": "a different … from, other than",
    r"the question whether": "whether",
    r"somebody|anybody": "someone, anyone",
}
"""Forbidden word (a regular expression) → what to write. Add to it when you find another one."""

ALLOWED: dict[tuple[str, str], str] = {
    ("report/change.py", "told"): "a value of the JSON field `kind`",
    ("report/fact_diff.py", "told"): "a value of the JSON field `kind`",
    ("report/journal_diff.py", "told"): "the name of a field in journals",
    ("cli/approval_prompt.py", "nobody"): "the field `by` of approvals, which is on cassettes",
    ("engine/approvals.py", "nobody"): "the field `by` of approvals, which is on cassettes",
    (
        "testing/suite/fault_injection.py",
        "nobody",
    ): "the field `by` of approvals, which is on cassettes",
    ("core/package_tools.py", "tell"): "a value of the key `on_denied`",
    ("core/tool_calls.py", "tell"): "a value of the key `on_denied`",
    ("spec/v1/tools.py", "tell"): "a value of the key `on_denied`",
}
"""(file, the whole literal) → why it may stay."""

QUOTES_FORMER_TEXTS = ("cassette/former_texts.py",)
"""Files that recognise texts of older versions, which users do not read."""

VALUE = re.compile(r"`[^`\s]+`")
"""A key or a value of the spec language in the text of a page."""
FORBIDDEN = re.compile(rf"\b(?:{'|'.join(FORBIDDEN_WORDS)})\b", re.IGNORECASE)


def find_words(text: str) -> list[str]:
    """Each forbidden word with the words around it and what to write."""
    found = []
    text = " ".join(VALUE.sub("``", text).split())
    for match in FORBIDDEN.finditer(text):
        around = text[max(match.start() - 40, 0) : match.end() + 40]
        instead = next(good for bad, good in FORBIDDEN_WORDS.items() if re.fullmatch(bad, match[0], re.IGNORECASE))
        found.append(f"“{match[0]}” in “{around}”: write {instead}")
    return found


# --- the texts ---------------------------------------------------------------------------------------------------


def commands(command: click.Command, name: str = "agentrun") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from commands(found, f"{name} {child}")


COMMANDS = dict(commands(root_command))


def descriptions(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (schema[key] for key in ("title", "description") if isinstance(schema.get(key), str))
        for value in schema.values():
            yield from descriptions(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from descriptions(value)


def docstrings(tree: ast.AST) -> set[int]:
    """The ids of nodes that are docstrings: of modules, classes, functions and fields."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def literals(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each string literal that is not a docstring. `{}` is a value in an f-string."""
    tree = ast.parse(source)
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            skipped |= {id(part) for part in node.values}
            yield node.lineno, "".join(map(str, parts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def remarks(source: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring and comment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def files(package: str) -> list[Path]:
    """The modules of a package. `agentrun` has the modules that are in no package."""
    return sorted(PACKAGE.glob("*.py") if package == "agentrun" else (PACKAGE / package).rglob("*.py"))


PACKAGES = ["agentrun", *sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))]
SETTINGS = [
    ROOT / name for name in ("Makefile", "pyproject.toml", ".ci/run", "specs/record.py", "specs/ops/servicectl")
]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(PACKAGE / "cli" / "starter").rglob("*.*"),
        *SETTINGS,
    ]
    if path.is_file()
)
SPECS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "specs").rglob("*.yaml"))
SPEC_TEXT = re.compile(r"(?:# |\b(?:description|reason): )(.*)")
"""A comment or a text for people. Prompts and messages are not checked: customers may write as they like."""


# --- the checks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_no_forbidden_word(name: str) -> None:
    command = COMMANDS[name]
    assert find_words(command.get_help(click.Context(command, info_name=name))) == []


def test_schema_descriptions_have_no_forbidden_word() -> None:
    texts = {text for name in SCHEMA_NAMES for text in descriptions(json.loads(schema_text(name)))}
    assert [line for text in sorted(texts) for line in find_words(text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_page_has_no_forbidden_word(page: str) -> None:
    assert find_words((ROOT / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("spec", SPECS)
def test_comments_of_spec_have_no_forbidden_word(spec: str) -> None:
    assert find_words("\n".join(SPEC_TEXT.findall((ROOT / spec).read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_messages_have_no_forbidden_word(package: str) -> None:
    found = []
    for path in files(package):
        file = path.relative_to(PACKAGE).as_posix()
        if file in QUOTES_FORMER_TEXTS:
            continue
        for line, text in literals(path.read_text(encoding="utf-8")):
            if (file, text) not in ALLOWED:
                found += [f"{file}:{line}: {each}" for each in find_words(text)]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_and_comments_have_no_forbidden_word(package: str) -> None:
    found = []
    for path in files(package):
        for line, text in remarks(path.read_text(encoding="utf-8")):
            found += [f"{path.relative_to(PACKAGE)}:{line}: {each}" for each in find_words(text)]
    assert found == []


# --- the checker itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Tell them",
        "what it told",
        "the rule stands",
        "Whoever",
        "nobody",
        "mended",
        "has lain",
        "laid over",
        "is well",
        "all well",
        "must hold",
        "Tapes",
        "anew",
        "unclaimed",
        "a complaint",
        "its keeper",
        "dearest",
        "grows over",
        "words and signs",
        "written down",
        "files, also in prompts",
        "also if it fails",
        "without a question",
        "another model than",
        "the question whether",
        "what somebody wants",
        "run, also\nof sub-agents",
    ],
)
def test_forbidden_word_is_found(text: str) -> None:
    assert len(find_words(f"so {text}, then")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "standard output",
        "understands",
        "as well",
        "explain",
        "tapestry",
        "amend",
        "goalkeeper",
        "`tell` or `stop`",
        "it also checks",
        "see also the",
        "a placeholder stands for a value",
    ],
)
def test_similar_words_are_allowed(text: str) -> None:
    assert find_words(text) == []


def test_literals_excludes_docstrings() -> None:
    source = '"""doc tape"""\nx = f"a tape {y!r} b" "c"\n"""field tape"""\n\ndef f():\n    """tape"""\n    return "d"\n'
    assert sorted(literals(source)) == [(2, "a tape {} bc"), (7, "d")]


def test_remarks_are_docstrings_and_comments() -> None:
    source = '"""doc"""\nx = "a"  # why\n"""field"""\n\ndef f():\n    """inner"""\n'
    assert sorted(remarks(source)) == [(1, "doc"), (2, "# why"), (3, "field"), (6, "inner")]


def test_every_allowed_text_exists() -> None:
    for file, text in ALLOWED:
        assert text in [each for _, each in literals((PACKAGE / file).read_text(encoding="utf-8"))], file
