"""Problems in documents: their codes, places and how they are printed.

Rule 1  Problems are collected, not raised one by one. `sort_problems` sorts them and drops duplicates.
Rule 2  A problem has a place and, if possible, a hint that says how to fix it.
Rule 3  Printed text is escaped and masked: no control character reaches a terminal and no secret reaches a log.
Rule 4  Lines and columns start at 1 and count code points, like editors do. Carets count terminal cells.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from agentrun import secret

PROBLEM_CODES: dict[str, str] = {
    "spec.agent_cycle": "sub-agents call each other in a cycle",
    "spec.agent_depth": "sub-agents are nested deeper than `limits.depth`",
    "spec.alias_limit": "there are too many aliases, they make the document too large, or one contains itself",
    "spec.args": "the arguments of a tool are not an object, or do not match the parameters of its function",
    "spec.argv": "the command of a tool is a template, or a whole command line",
    "spec.assertion": "an assertion can never be evaluated, or can never pass",
    "spec.case": "a case has two settings that exclude each other, the same tag twice, or an invalid date",
    "spec.condition": "a CEL condition does not compile, reads an unknown field, or is not a boolean",
    "spec.depth_limit": "the document is nested deeper than 64 levels",
    "spec.documents": "a file has more than one document",
    "spec.duplicate_key": "a mapping has the same key twice",
    "spec.duplicate_name": "two rules, hooks, cases or redactions have the same name",
    "spec.empty": "the document is empty",
    "spec.encoding": "the file is not UTF-8 text, or has characters that are not allowed",
    "spec.env_here": "`${NAME}` is used where environment variables are not replaced",
    "spec.env_name": "`${…}` does not name an environment variable",
    "spec.exec_argv": "a template fills in code or the name of a program that is run (warning)",
    "spec.fails_open": "a hook before a tool call would let the call run if it fails",
    "spec.fault": "a fault injection has no fault, several faults, or a fault that cannot happen at its place",
    "spec.file_hidden": "a hidden file is named as a prompt, a schema, a shared part or a sub-agent",
    "spec.file_missing": "a file does not exist",
    "spec.file_outside": "a path leads out of the project or through a symbolic link",
    "spec.file_unreadable": "a file exists but cannot be read",
    "spec.given_twice": "the same value is set twice, for example by two shared files",
    "spec.header": "a header is set twice, has an invalid value, or is reserved",
    "spec.illegal_ruling": "a ruling is not possible at the stage of its rule",
    "spec.jmespath": "a JMESPath expression is invalid, or its result could be too large",
    "spec.json_schema": "a JSON Schema is invalid",
    "spec.key": "a mapping key is empty, null or not a plain text",
    "spec.lock": "the lock file of a spec is damaged or has another version",
    "spec.look_alike": "two names look too similar",
    "spec.mcp": "an MCP server has both or neither of `command` and `url`, or a key that belongs to the other one",
    "spec.merge_key": "merge keys (`<<`) are not YAML 1.2",
    "spec.missing_key": "a required key is missing",
    "spec.mixed": "a text has both `${NAME}` and `{{ }}`",
    "spec.modify": "`modify`, `set` and `mask` do not fit together",
    "spec.name": "a key is not a valid name",
    "spec.no_budget": "no budget except turns limits what a run may spend (warning)",
    "spec.no_cassette": "a case names a cassette that does not exist and belongs to no other case (warning)",
    "spec.no_default": "an agent with tools has no `policy.default`",
    "spec.no_description": "a tool has no description for the model (warning)",
    "spec.no_price": "there is a budget in dollars, but no price for a route",
    "spec.no_schema": "a setting of `output` has no effect without `output.schema`",
    "spec.no_spec": "there is no spec next to a cases file",
    "spec.number": "a number is ambiguous, infinite, or too large to be exact",
    "spec.out_of_range": "a value is outside its range",
    "spec.param_default": "the default of a param does not match its schema",
    "spec.path": "a path is not inside the project",
    "spec.pattern": "RE2 does not support a regular expression",
    "spec.project": "`[tool.agentrun]` in pyproject.toml is invalid",
    "spec.python": "a Python function is missing or cannot be used",
    "spec.redact": "a redaction has neither a path nor a pattern",
    "spec.reserved": "a param has a reserved name",
    "spec.rule_never_matches": "a rule can never match",
    "spec.rulings": "a rule has no ruling, or more than one",
    "spec.schema_ref": "a reference in a JSON Schema is external, unknown, circular, or makes the schema too large",
    "spec.secret": "a file contains a literal secret",
    "spec.setting": "`--set` is not path=value",
    "spec.shell_line": "a template fills in a part of a shell command line",
    "spec.stub": "a stub has neither or both of `result` and `error`, or replaces a sub-agent",
    "spec.tag": "explicit tags (`!!str`, `!x`) are not allowed",
    "spec.template_forbidden": "a template uses a feature that is not allowed",
    "spec.template_render": "a prompt cannot be rendered with the default params",
    "spec.template_syntax": "a template has a syntax error",
    "spec.template_unknown_filter": "a template uses a filter or test that does not exist",
    "spec.template_unknown_name": "a template reads a variable or argument that is not declared",
    "spec.too_large": "a file or document is larger than allowed",
    "spec.tool_never_allowed": "the policy can never allow a tool",
    "spec.unknown_arg": "an argument is not declared",
    "spec.unknown_key": "a key is unknown",
    "spec.unknown_param": "a param is not declared",
    "spec.unknown_profile": "a profile is not declared",
    "spec.unknown_provider": "agentrun has no provider of this name (warning)",
    "spec.unknown_tool": "a tool is not declared",
    "spec.unpinned": "a tool of an MCP server is not in the lock file",
    "spec.unsupported": "a provider does not support a setting",
    "spec.until": "`until` is not with `defer`, or there is no such time",
    "spec.unused_param": "a param is never used (warning)",
    "spec.url": "a URL is invalid or not allowed",
    "spec.version": "the version of the spec language is unknown",
    "spec.wrong_text": "a text has the wrong format",
    "spec.wrong_type": "a value has the wrong type",
    "spec.wrong_value": "a value is not one of the allowed values",
    "spec.yaml_syntax": "the file is not valid YAML",
}

_EXCERPT_LENGTH = 100
_MAX_MESSAGE_LENGTH = 500
_SECRET_MARGIN = 20_000
_SURROGATE = re.compile("[\ud800-\udfff]")
# Printable in Unicode, but drawn as nothing: Hangul fillers, the Braille blank, variation selectors.
_BLANK_CHARACTERS = re.compile("[\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0e\U000e0100-\U000e01ef]")
_KEY_WITHOUT_VALUE = re.compile(r"""[\s-]*["']?([A-Za-z0-9_.-]+)["']?\s*:\s*(?:[|>][+0-9-]*)?\s*$""")


class Source(Struct, frozen=True):
    path: Path
    display_name: str
    """The name in messages, such as `specs/support.yaml`."""
    text: str

    def __repr__(self) -> str:  # the text may contain secrets
        return f"Source({_printable(self.display_name)!r})"

    def line(self, number: int) -> str | None:
        """Return one line without its line end, or None if there is no such line."""
        lines = self.text.split("\n", number)
        return lines[number - 1] if 0 < number <= len(lines) else None


class SourcePlace(Struct, frozen=True):
    source: Source
    line: int
    column: int
    width: int = 1
    """How many code points the carets underline, at most to the end of the line."""

    def __str__(self) -> str:
        return f"{self.source.display_name}:{self.line}:{self.column}"


class Problem(Struct, frozen=True):
    place: SourcePlace
    code: str
    message: str
    hint: str | None = None
    severity: Literal["error", "warning"] = "error"

    @property
    def file(self) -> str:
        return self.place.source.display_name

    @property
    def line(self) -> int:
        return self.place.line

    @property
    def column(self) -> int:
        return self.place.column

    def as_json(self) -> dict[str, Any]:
        return {
            "file": _printable(self.file),
            "line": self.line,
            "column": self.column,
            "code": self.code,
            "message": _printable(self.message),
            "hint": None if self.hint is None else _printable(self.hint),
            "severity": self.severity,
        }


class DocumentError(Exception):
    """A document that cannot be used, with all its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sort_problems(problems)
        super().__init__("; ".join(f"{p.place}: {p.code}" for p in self.problems[:3]))


class ProblemError(Exception):
    """Why something cannot be used, as an exception. The caller adds the place in the spec that names it."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.hint = hint

    def problem(self, place: SourcePlace) -> Problem:
        return Problem(place, self.code, self.message, self.hint)


def sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    seen = {(p.file, p.line, p.column, p.code, p.message): p for p in problems}
    return [seen[key] for key in sorted(seen)]


def did_you_mean(word: str, options: Iterable[str]) -> str | None:
    """Return `did you mean "search"?`, or None if no option is similar."""
    near = similar_word(word, options)
    return None if near is None else f"did you mean {quote_text(near)}?"


def similar_word(word: str, options: Iterable[str]) -> str | None:
    """The option that is most similar to a misspelt word. The word itself is never suggested."""
    others = [option for option in islice(options, 1000) if option != word and len(option) <= 100]
    if not others or len(word) > 100:
        return None
    alike = {_normalize_word(option): option for option in reversed(others)}
    near = difflib.get_close_matches(_normalize_word(word), alike, n=1, cutoff=0.6)
    return alike[near[0]] if near else None


def _normalize_word(word: str) -> str:
    return word.casefold().replace("-", "_")


def quote_text(text: str, most: int = 60) -> str:
    """Quote a text of the user for a message: escaped, masked and shortened."""
    clean = escape_invisible(secret.mask(text))
    return f'"{clean}"' if len(clean) <= most else f'"{clean[:most]}…"'


def is_utf8_text(text: str) -> bool:
    return text.isascii() or _SURROGATE.search(text) is None


def escape_invisible(text: str) -> str:
    """Replace control, direction, zero-width and other invisible characters by escapes (`\\x1b`, `\\u202e`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_escape_character, text))


def _escape_character(char: str) -> str:
    if (char.isprintable() and not _BLANK_CHARACTERS.match(char)) or char == "\u3000":
        return char
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _printable(text: str) -> str:
    clean = escape_invisible(secret.mask(text))
    return clean if len(clean) <= _MAX_MESSAGE_LENGTH else clean[:_MAX_MESSAGE_LENGTH] + "…"


def render_problem(problem: Problem, *, color: bool = False) -> str:
    """Format a problem for people: place, code and message, then the line with carets and the hint."""

    def paint(text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if color and text else text

    strong = "31" if problem.severity == "error" else "33"
    place = f"{_printable(problem.file)}:{problem.line}:{problem.column}"
    warning = "" if problem.severity == "error" else "warning: "
    lines = [f"{paint(place, '1')}  {paint(problem.code, strong)}  {warning}{_printable(problem.message)}"]
    hint = "" if problem.hint is None else _printable(problem.hint)
    excerpt = _excerpt(problem.place)
    if excerpt is not None:
        text, before, under = excerpt
        caret = f"{' ' * before}{paint('^' * under, strong)}"
        lines += [f"{problem.line:>5} | {text}".rstrip(), f"      | {caret}  {hint}".rstrip()]
    elif hint:
        lines.append(f"      {hint}")
    return "\n".join(lines)


def _excerpt(place: SourcePlace) -> tuple[str, int, int] | None:
    """Return the printed line, the number of cells before the carets, and the number of carets."""
    line = place.source.line(place.line)
    if line is None or not place.source.text:
        return None
    column = min(place.column - 1, len(line))
    end = max(min(column + place.width, len(line)), column + 1)
    first, last = 0, len(line)
    if len(line) > _EXCERPT_LENGTH + 20:
        first = max(0, min(column - 40, len(line) - _EXCERPT_LENGTH))
        last = first + _EXCERPT_LENGTH
    shown, before, under = ("…", 1, 0) if first else ("", 0, 0)
    for start, stop, text in _cells(line, _masked_spans(place, line), first, last):
        cells = sum(map(_cell_width, text))
        if stop <= column:
            before += cells
        elif start < end:
            under += cells
        shown += text
    return shown + ("…" if last < len(line) else ""), before, max(under, 1)


def _cells(line: str, spans: list[tuple[int, int]], first: int, last: int) -> Iterable[tuple[int, int, str]]:
    """Split a line between two columns into pieces: (start, stop, printed text)."""
    position = first
    for start, stop in [*spans, (last, last)]:
        for at in range(position, min(start, last)):
            yield at, at + 1, " " if line[at] == "\t" else _escape_character(line[at])
        if start < last and stop > max(position, first):
            yield start, stop, secret.MASK
        position = max(position, stop)


def _masked_spans(place: SourcePlace, line: str) -> list[tuple[int, int]]:
    """Return the spans of a line to mask. The line above may show that a line is a secret."""
    before = place.source.text.split("\n", place.line - 1)[: place.line - 1]
    whole = [(len(line) - len(line.lstrip()), len(line))]
    above = next((text for text in reversed(before) if text.strip()), "")
    key = _KEY_WITHOUT_VALUE.match(above[:200])
    if key and secret.names_credential(key[1]) and secret.find_secrets(line.strip(), key[1]):
        return whole
    opened = max((i for i, text in enumerate(before) if "-----BEGIN" in text and "PRIVATE" in text), default=-1)
    if opened >= 0 and not any("-----END" in text for text in before[opened:]):
        return whole
    # Search for secrets far beyond the printed part, but not in the whole of a line of a megabyte.
    first = max(0, place.column - _SECRET_MARGIN)
    return [(first + a, first + b) for a, b in secret.mask_spans(line[first : place.column + _SECRET_MARGIN])]


def _cell_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def place_at(source: Source, index: int, width: int = 1) -> SourcePlace:
    """Return the place of an offset in the text. The end of the text is shown after its last visible line."""
    text = source.text
    if index >= len(text):
        index = len(text.rstrip())
    start = text.rfind("\n", 0, index) + 1
    return SourcePlace(source, text.count("\n", 0, index) + 1, index - start + 1, width)
