"""In what two prompts differ, line by line, from which line of a template each comes, and what changed it.

Rule 1  The present templates are rendered again, with places, and with the recorded params. A line that these params
        would bring back is due to them; any other is due to the template.
Rule 2  Nothing is blamed without evidence: no recorded params, or a template whose fingerprint is the recorded one.
Rule 3  A bounded number of characters and lines is compared, for difflib takes the cube of them at worst.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentrun.cassette.miss_context import (
    MissContext,
    Template,
    changed_params,
    changed_sections,
    describe_changed_params,
    recorded_params,
)
from agentrun.cassette.request_diff import MAX_LISTED, DifferenceKind, RequestDifference, common_prefix_length, excerpts
from agentrun.compiler.template import RenderedLine, TemplateRenderError, render_template_lines
from agentrun.spec.safe_text import masked_lines

MAX_TEXT = 1 << 20
MAX_WINDOW = 200
"""Lines, from the first that differs on, in which equal ones are looked for."""
MAX_PARAMS = 8
"""Params that are tried one by one."""


class PromptLine(NamedTuple):
    """A line of a prompt, and what gave it."""

    text: str
    template: Template | None = None
    line: RenderedLine | None = None

    def place(self, column: int) -> tuple[str | None, int | None]:
        """File and line that gave the character at a column."""
        if self.template is None or self.line is None:
            return None, None
        return self.template.label, self.template.first_line + self.line.origin(column) - 1


class RenderedPrompt(NamedTuple):
    """A prompt as it is rendered with some values."""

    lines: list[PromptLine]
    counts: Counter[str]

    def differs(self, present: RenderedPrompt, was: str | None, new: int | None) -> bool:
        """Whether the present line is another here, or the recorded one is there again."""
        if new is not None and len(self.lines) == len(present.lines):
            return self.lines[new].text != present.lines[new].text
        now = None if new is None else present.lines[new].text
        return (now is not None and present.counts[now] > self.counts[now]) or (
            was is not None and self.counts[was] > present.counts[was]
        )

    def place_of(self, text: str) -> tuple[str | None, int | None]:
        return next((line.place(0) for line in self.lines if line.text == text), (None, None))


def compare_prompts(
    kind: DifferenceKind,
    was: str,
    now: str,
    templates: Sequence[Template],
    metadata: Mapping[str, Any],
    here: MissContext | None,
) -> Iterator[RequestDifference]:
    """The lines that differ, the first few of them with their origin and reason."""
    if was == now:
        return
    name = "instructions" if kind == "instructions" else "message"
    was, now = was[:MAX_TEXT], now[:MAX_TEXT]
    one, two = was.split("\n"), now.split("\n")
    pairs, cut = _pair_lines(one, two)
    if not pairs:
        yield RequestDifference(kind, name, f"the {name} differ{'s' * (name == 'message')} far below the beginning")
        return
    origins = None if here is None else LineOrigins(kind, templates, metadata, here, len(two))
    shown = masked_lines(was), masked_lines(now)
    for old, new in pairs[:MAX_LISTED]:
        found = _line_difference(kind, name, old, new, shown, alone=len(one) == len(two) == 1)
        yield found if origins is None else origins.explain(found, old, new, one, two)
    if cut or len(pairs) > MAX_LISTED:
        more = "more lines" if cut else f"{len(pairs) - MAX_LISTED} more line{'s' * (len(pairs) - MAX_LISTED > 1)}"
        yield RequestDifference(kind, name, f"and {more} of the {name}")


class LineOrigins:
    """Where the lines of the present prompt come from, and what changed them."""

    def __init__(
        self,
        kind: DifferenceKind,
        templates: Sequence[Template],
        metadata: Mapping[str, Any],
        here: MissContext,
        length: int,
    ) -> None:
        self._changed = changed_params(metadata, here)
        sections = changed_sections(metadata, here)
        self._knows = recorded_params(metadata) is not None or not here.params
        self._blames_template = sections is None or kind in sections
        recorded = {name: was for name, (was, _) in self._changed.items()}
        present = render_templates(templates, here.params)
        # Other lines than were sent: a message that was given by hand, or a prompt that something else changed.
        self._present = present if present and len(present.lines) == length else None
        self._past = render_templates(templates, here.params | recorded) if recorded else present
        self._single: dict[str, RenderedPrompt] = {}
        if self._present and len(recorded) <= MAX_PARAMS:
            for name, value in recorded.items():
                if again := render_templates(templates, here.params | {name: value}):
                    self._single[name] = again

    def explain(
        self, found: RequestDifference, old: int | None, new: int | None, one: list[str], two: list[str]
    ) -> RequestDifference:
        if self._present is None:
            return found
        was = None if old is None else one[old]
        template, line = None, None
        if new is not None:
            column = 0 if was is None else common_prefix_length(was, two[new])
            template, line = self._present.lines[new].place(column)
        elif self._past is not None and was is not None:
            template, line = self._past.place_of(was)
        return replace(found, template=template, template_line=line, because=self._because(self._present, was, new))

    def _because(self, present: RenderedPrompt, was: str | None, new: int | None) -> str | None:
        if self._past is None or not self._knows:
            return None
        names = [name for name, render in self._single.items() if render.differs(present, was, new)]
        if not names and self._changed and self._past.differs(present, was, new):
            names = list(self._changed)
        by_template = not names or (was is not None and not self._past.counts[was])
        words = [describe_changed_params({name: self._changed[name] for name in names})] if names else []
        if by_template and self._blames_template:
            words.append("the template changed" if not names else "so did the template")
        return ", and ".join(words) or None


def render_templates(templates: Sequence[Template], values: Mapping[str, Any]) -> RenderedPrompt | None:
    """The templates as one prompt. None: there are none, or they cannot be rendered with these values."""
    lines: list[PromptLine] = []
    for template in templates:
        try:
            own = render_template_lines(template.source, values)
        except TemplateRenderError:
            return None
        lines += [*([PromptLine("")] if lines else []), *(PromptLine(line.text, template, line) for line in own)]
    return RenderedPrompt(lines, Counter(line.text for line in lines)) if lines else None


def _line_difference(
    kind: DifferenceKind,
    name: str,
    old: int | None,
    new: int | None,
    shown: tuple[list[str], list[str]],
    *,
    alone: bool,
) -> RequestDifference:
    was = None if old is None else shown[0][old]
    now = None if new is None else shown[1][new]
    line = (old if new is None else new) or 0
    place = (
        "the message"
        if alone and kind == "input"
        else f"{name} line {line + 1}{' of the recording' if new is None else ''}"
    )
    one, two = excerpts(was or "", now or "")
    if old is None:
        words = f'{place} is new: "{two}"'
    elif new is None:
        words = f'{place} is gone: "{one}"'
    elif was == now:
        words = f"{place} differs in what may be a secret"
    else:
        words = f'{place} is "{two}", recorded was "{one}"'
    return RequestDifference(kind, place, words, None if old is None else one, None if new is None else two, line + 1)


def _pair_lines(was: list[str], now: list[str]) -> tuple[list[tuple[int | None, int | None]], bool]:
    """The lines that differ, old and new side by side, and whether there may be more of them."""
    shortest = min(len(was), len(now))
    start = next((n for n in range(shortest) if was[n] != now[n]), shortest)
    end = next((n for n in range(shortest - start) if was[-1 - n] != now[-1 - n]), shortest - start)
    one, two = was[start : len(was) - end], now[start : len(now) - end]
    cut = max(len(one), len(two)) > MAX_WINDOW and min(len(one), len(two)) > 0
    if cut:
        one, two = one[:MAX_WINDOW], two[:MAX_WINDOW]
    found: list[tuple[int | None, int | None]] = []
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if tag != "equal":
            for n in range(max(i_end - i, j_end - j)):
                old = start + i + n if i + n < i_end else None
                new = start + j + n if j + n < j_end else None
                found.append((old, new))
    return found, cut
