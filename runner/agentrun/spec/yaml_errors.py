"""Explain YAML syntax errors. The place that libyaml reports is often not the place of the mistake.

Rule 1  The C parser and the Python parser have different error messages. Both get the same message here.
Rule 2  The place is where the user should look: the quote or bracket that was opened, not the end of the file.
"""

from __future__ import annotations

import re
from typing import Any

from agentrun.spec.problems import Problem, Source, place_at, quote_text

_QUOTE_IT = "quote the value"


def explain_yaml_error(source: Source, error: Any) -> Problem:
    what = str(error.problem or "").lower()
    context = str(error.context or "").lower()
    mark = error.problem_mark or error.context_mark
    at = min(mark.index, len(source.text)) if mark else 0
    opened = error.context_mark.index if error.context_mark else at
    where, message, hint = _diagnose(source.text, what, context, at, opened)
    code = "spec.tag" if "tag" in what.split() or "a tag" in context else "spec.yaml_syntax"
    return Problem(place_at(source, where), code, message, hint)


def _diagnose(text: str, what: str, context: str, at: int, opened: int) -> tuple[int, str, str | None]:
    start = text.rfind("\n", 0, at) + 1
    char = text[at : at + 1]
    tab = re.match(r" *\t", text[start : at + 1])
    if tab or "tab character" in what:
        index = start + tab.end() - 1 if tab else at
        return index, "a tab is used for indentation", "indent with spaces"
    if "quoted scalar" in context or "double-quoted" in context:
        return _diagnose_quote(text, what, at, opened)
    if char == ":" and any(words in what for words in ("expected key", "block end", "node content")):
        return at, 'there is no key before this ":"', "write the key before the colon"
    if "flow sequence" in context or "flow mapping" in context:
        return _diagnose_bracket(text, at, opened)
    if "alias" in context or "anchor" in context:
        message = f"{quote_text(text[opened : opened + 1])} begins an alias or anchor and needs a name"
        return opened, message, _QUOTE_IT
    if "cannot start" in what:
        template = text.startswith(("{%", "{{", "{#"), max(at - 1, 0)) or text.startswith("%}", at)
        hint = "quote the template" if template else _QUOTE_IT
        return at, f"an unquoted value cannot begin with {quote_text(char)}", hint
    if "mapping values" in what:
        return _diagnose_colon(text, start, at)
    if "expected ':'" in what:
        return opened, "this line is neither a key nor part of a value", 'write "key: value", with a space'
    if "sequence entries" in what:
        return at, "a list cannot begin on the line of its key", "put each item on its own line below, or use [ ]"
    return _diagnose_other(text, what, context, at)


def _diagnose_colon(text: str, start: int, at: int) -> tuple[int, str, str | None]:
    before = text[start:at]
    if not re.fullmatch(r"[ -]*[^\s:'\"]+", before):
        return at, 'a ":" is not expected here', 'quote a value that contains ": "'
    above = text.rfind("\n", 0, max(start - 1, 0)) + 1
    glued = re.match(r"[ -]*[A-Za-z_][\w-]*:(?=[^\s/])", text[above:start])
    if glued:
        return above + glued.end() - 1, "there is no space after this colon, so this is not a key", "add a space"
    key = start + len(before) - len(before.lstrip(" -"))
    return key, "a key is not expected here", "check the indentation of this line and the one above"


def _diagnose_quote(text: str, what: str, at: int, opened: int) -> tuple[int, str, str | None]:
    if "escape" in what or "hexadecimal" in what:
        hint = "double the backslash, or use single quotes; write characters above U+FFFF as they are"
        return text.rfind("\\", opened, at + 1), "this escape is not valid in double quotes", hint
    return opened, "the quote opened here is not closed", "close it, or double a quote that is part of the text"


def _diagnose_bracket(text: str, at: int, opened: int) -> tuple[int, str, str | None]:
    bracket = text[opened : opened + 1]
    close = {"[": "]", "{": "}"}.get(bracket, "]")
    if text.startswith(("{{", "{%"), opened):
        return opened, "an unquoted value cannot begin with a template", "quote the template"
    if "\n" in text[opened:at] or at >= len(text):
        line = text.count("\n", 0, at) + 1
        until = "" if at >= len(text) else f" before line {line}"
        return opened, f'the "{bracket}" opened here is not closed{until}', f'add "{close}"'
    return at, f'a "," or "{close}" is expected here', f'separate items with ",", or add "{close}"'


def _diagnose_other(text: str, what: str, context: str, at: int) -> tuple[int, str, str | None]:
    if "'-'" in what or ("block collection" in context and "block end" in what):
        return at, "this is not an item of the list above", 'begin each item with "- ", all with the same indentation'
    if text[:at].rstrip(" ").endswith(("'", '"')) and ("key" in what or "block end" in what):
        return at, "there is text after a closing quote", "quote the whole value; in single quotes write '' for '"
    if "expected key" in what or ("block mapping" in context and "block end" in what):
        return at, "this is neither a key nor the end of the mapping", "check the indentation"
    if "document start" in what:
        return at, "the document ended before this line", "quote the whole value, and check the indentation"
    if "node content" in what:
        return at, f"a value is expected before {quote_text(text[at : at + 1])}", None
    if "directive" in what + context or "yaml document" in what:
        return at, "unknown directive", "remove the line that begins with %"
    if "block scalar" in context:
        return at, "this text block is not valid", "begin the text on a new line, indented with spaces"
    if "tag" in what:
        return at, "explicit tags are not allowed", "remove the tag; quote a value to make it text"
    return at, f"not valid YAML: {what or 'unknown error'}", None
