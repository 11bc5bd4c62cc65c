"""The tags of a template: which there are, and whether each is closed.

Rule 1  `if`, `for` and `set` are the only statements. Every other tag is refused, with what to do instead.
Rule 2  Nesting is checked here: Jinja's parser tells where it gave up and not what was left open.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from agentrun.compiler.template_language.fault import Faults, nearest, short

MAX_OPEN: Final = 32

_FILES: Final = "list several files under `instructions:` instead"
_REFUSED: Final = {
    "include": _FILES,
    "import": _FILES,
    "from": _FILES,
    "extends": _FILES,
    "block": _FILES,
    "macro": "write the text where it is needed, or loop over a list with `{% for %}`",
    "call": "write the text where it is needed",
    "filter": "put the filter on the value: `{{ value|upper }}`",
    "with": "use `{% set name = value %}`",
    "autoescape": "leave it out: nothing is escaped here",
    "print": "write `{{ value }}`",
    "do": "leave it out: a template only writes text",
    "break": "choose the items instead: `{% for x in list if x.open %}`",
    "continue": "choose the items instead: `{% for x in list if x.open %}`",
    "trans": "write the text as it is",
    "debug": "use `agentrun render` to see the text",
}
_ALLOWED: Final = ("if", "elif", "else", "endif", "for", "endfor", "set")
_CLOSED_BY: Final = {
    name: f"end{name}"
    for name in ("if", "for", "set", "block", "macro", "call", "filter", "with", "autoescape", "trans")
}
_MIDDLE: Final = {"elif": ("if",), "else": ("if", "for"), "pluralize": ("trans",)}
_NEEDS_EXTENSION: Final = ("do", "break", "continue", "debug", "trans", "pluralize", "endtrans")


class Token(NamedTuple):
    offset: int
    kind: str
    text: str


class Tag(NamedTuple):
    """One `{{ … }}` or `{% … %}`."""

    first: int
    """Index of its first token."""
    last: int
    """Index after its last token."""
    words: list[Token]
    """The tokens between the braces, without white space."""
    begin: Token
    end_token: Token

    @property
    def start(self) -> int:
        return self.begin.offset

    @property
    def end(self) -> int:
        return self.end_token.offset + len(self.end_token.text)

    @property
    def prints(self) -> bool:
        return self.begin.kind == "variable_begin"

    @property
    def name(self) -> str:
        """The name of a statement; empty for a `{{ … }}` and for a statement without one."""
        return "" if self.prints or not self.words or self.words[0].kind != "name" else self.words[0].text

    @property
    def can_be_left_out(self) -> bool:
        """Whether the rest can be read without it."""
        return self.prints or self.name in ("if", "elif")

    @property
    def opens(self) -> bool:
        """Whether it needs a closing tag: `{% set x %}…` does, `{% set x = 1 %}` does not."""
        if self.name != "set":
            return self.name in _CLOSED_BY
        depth = 0
        for word in self.words:
            depth += (word.text in ("(", "[", "{")) - (word.text in (")", "]", "}"))
            if word.text == "=" and not depth:
                return False
        return True


def tags_of(tokens: list[Token]) -> list[Tag]:
    """The tags in order. One that is never closed ends with the last token."""
    tags = []
    first: int | None = None
    words: list[Token] = []
    for index, token in enumerate(tokens):
        if token.kind in ("variable_begin", "block_begin"):
            first, words = index, []
        elif token.kind in ("variable_end", "block_end") and first is not None:
            tags.append(Tag(first, index + 1, words, tokens[first], token))
            first = None
        elif first is not None and token.kind != "whitespace":
            words.append(token)
    if first is not None:
        tags.append(Tag(first, len(tokens), words, tokens[first], tokens[-1]))
    return tags


def is_readable(tag: Tag) -> bool:
    """Whether Jinja's parser knows a tag; one that it does not know is noted by `check_tags` and left out."""
    name = tag.name
    known = name in _ALLOWED or name in _REFUSED or name in _CLOSED_BY.values()
    return tag.prints or (known and name not in _NEEDS_EXTENSION)


def check_tags(tags: list[Tag], faults: Faults) -> bool:
    """Note every tag that is not ours or not closed; say whether the nesting is sound enough to read on."""
    sound = True
    open_tags: list[Tag] = []
    statements = [tag for tag in tags if not tag.prints]
    for tag in statements:
        _check_name(tag, faults)
    if any(_is_unknown(tag) for tag in statements):  # then what closes nothing is only its echo
        faults = Faults("")
    for tag in tags:
        if not tag.end_token.kind.endswith("_end"):
            end = "}}" if tag.prints else "%}"
            faults.syntax(tag.start, len(tag.begin.text), f"`{tag.begin.text}` is never closed", f"add `{end}`")
            return False
        if not tag.prints:
            sound = _check_nesting(tag, open_tags, faults) and sound
        if len(open_tags) > MAX_OPEN:
            faults.syntax(tag.start, 2, f"tags are nested deeper than {MAX_OPEN} levels")
            return False
    for tag in open_tags:
        word = tag.words[0]
        hint = f"add `{{% {_CLOSED_BY[word.text]} %}}`"
        faults.syntax(word.offset, len(word.text), f"`{{% {word.text} %}}` is never closed", hint)
    return sound and not open_tags


def _is_unknown(tag: Tag) -> bool:
    known = (_ALLOWED, _REFUSED, _MIDDLE, _CLOSED_BY.values())
    return bool(tag.name) and not any(tag.name in names for names in known)


def _check_name(tag: Tag, faults: Faults) -> None:
    name = tag.name
    if not name:
        ways = "write `{{ value }}` to print, `{% if … %}` to choose"
        faults.syntax(tag.start, len(tag.begin.text), "this tag has no name", ways)
    elif name in _REFUSED:
        message = f"`{{% {name} %}}` is not allowed in a template"
        faults.forbidden(tag.words[0].offset, len(name), message, _REFUSED[name])
    elif _is_unknown(tag):
        hint = nearest(name, (*_ALLOWED, "raw", "endraw"))
        faults.syntax(tag.words[0].offset, len(name), f"there is no tag {short(name)}", hint)


def _check_nesting(tag: Tag, open_tags: list[Tag], faults: Faults) -> bool:
    name = tag.name
    innermost = open_tags[-1].name if open_tags else ""
    if tag.opens:
        open_tags.append(tag)
    elif innermost and name == _CLOSED_BY[innermost]:
        open_tags.pop()
    elif name in _CLOSED_BY.values() or (name in _MIDDLE and innermost not in _MIDDLE[name]):
        hint = f"close `{{% {innermost} %}}` first" if innermost else "nothing is open: leave it out"
        faults.syntax(tag.words[0].offset, len(name), f"`{{% {name} %}}` does not belong here", hint)
        if any(name == _CLOSED_BY[other.name] for other in open_tags):  # what it closes is not reported again
            while name != _CLOSED_BY[open_tags.pop().name]:
                pass
        return False
    return True
