"""Compare two prompts line by line: the template line each difference comes from, and what changed it.

Rule 1  The current templates are rendered with the current and with the recorded params. If the recorded params restore
        a line, the params are the reason; otherwise the template is.
Rule 2  No reason is given without evidence: the params must be recorded, and the template's fingerprint must differ.
Rule 3  The number of compared characters and lines is limited, because difflib is cubic in the worst case.
"""

from __future__ import annotations

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
from agentrun.cassette.request_diff import MAX_LISTED, DifferenceKind, RequestDifference, excerpts
from agentrun.compiler.template import RenderedLine, TemplateRenderError, render_template_lines
from agentrun.spec.safe_text import common_ends, common_prefix_length, masked_lines, pair_changed_lines, plural

MAX_TEXT = 1 << 20
MAX_WINDOW = 200
MAX_PARAMS = 8


class PromptLine(NamedTuple):
    text: str
    template: Template | None = None
    line: RenderedLine | None = None

    def place(self, column: int) -> tuple[str | None, int | None]:
        """The file and line that the character at a column comes from."""
        if self.template is None or self.line is None:
            return None, None
        line, included = self.line.origin(column), self.line.file(column)
        if included:
            return self.template.files.get(included, included), line
        return self.template.label, self.template.first_line + line - 1


class RenderedPrompt(NamedTuple):
    lines: list[PromptLine]
    counts: Counter[str]

    def differs(self, present: RenderedPrompt, was: str | None, new: int | None) -> bool:
        """Whether the current line differs in this rendering, or the recorded line is back."""
        if new is not None and len(self.lines) == len(present.lines):
            return self.lines[new].text != present.lines[new].text
        now = None if new is None else present.lines[new].text
        return (now is not None and present.counts[now] > self.counts[now]) or (
            was is not None and self.counts[was] > present.counts[was]
        )


def compare_prompts(
    kind: DifferenceKind, was: str, now: str, metadata: Mapping[str, Any], context: MissContext | None
) -> Iterator[RequestDifference]:
    """The first lines that differ, with origin and reason, and how many more there are."""
    if was == now:
        return
    name = "instructions" if kind == "instructions" else "message"
    was, now = was[:MAX_TEXT], now[:MAX_TEXT]
    one, two = was.split("\n"), now.split("\n")
    pairs, cut = _pair_lines(one, two)
    if not pairs:
        verb = "differs" if name == "message" else "differ"
        yield RequestDifference(kind, name, f"the {name} {verb} after the first {MAX_TEXT} characters")
        return
    origins = None if context is None else LineOrigins(kind, metadata, context, len(two))
    masked_was, masked_now = masked_lines(was), masked_lines(now)
    for old, new in pairs[:MAX_LISTED]:
        recorded = None if old is None else masked_was[old]
        current = None if new is None else masked_now[new]
        line = (old if new is None else new) or 0
        difference = _line_difference(kind, name, recorded, current, line, alone=len(one) == len(two) == 1)
        yield difference if origins is None else origins.explain(difference, old, new, one, two)
    if cut or len(pairs) > MAX_LISTED:
        more = "more lines" if cut else plural(len(pairs) - MAX_LISTED, "more line")
        yield RequestDifference(kind, name, f"and {more} of the {name}")


class LineOrigins:
    """Finds the origin of the lines of the current prompt, and what changed them."""

    def __init__(self, kind: DifferenceKind, metadata: Mapping[str, Any], context: MissContext, length: int) -> None:
        templates = context.instructions
        if kind == "input":
            templates = () if context.input is None else (context.input,)
        self._changed = changed_params(metadata, context)
        sections = changed_sections(metadata, context)
        self._knows_params = recorded_params(metadata) is not None or not context.params
        self._template_changed = sections is None or kind in sections
        recorded = {name: was for name, (was, _) in self._changed.items()}
        present = render_templates(templates, context.params)
        # The number of lines differs if the message was not rendered from the template, or a hook changed the prompt.
        self._present = present if present and len(present.lines) == length else None
        self._past = render_templates(templates, context.params | recorded) if recorded else present
        self._single: dict[str, RenderedPrompt] = {}
        if self._present and len(recorded) <= MAX_PARAMS:
            for name, value in recorded.items():
                if rendered := render_templates(templates, context.params | {name: value}):
                    self._single[name] = rendered

    def explain(
        self, difference: RequestDifference, old: int | None, new: int | None, one: list[str], two: list[str]
    ) -> RequestDifference:
        if self._present is None:
            return difference
        was = None if old is None else one[old]
        template, line = None, None
        if new is not None:
            column = 0 if was is None else common_prefix_length(was, two[new])
            template, line = self._present.lines[new].place(column)
        elif self._past is not None and was is not None:
            places = (line.place(0) for line in self._past.lines if line.text == was)
            template, line = next(places, (None, None))
        because = self._because(self._present, was, new)
        return replace(difference, template=template, template_line=line, because=because)

    def _because(self, present: RenderedPrompt, was: str | None, new: int | None) -> str | None:
        if self._past is None or not self._knows_params:
            return None
        names = [name for name, render in self._single.items() if render.differs(present, was, new)]
        if not names and self._changed and self._past.differs(present, was, new):
            names = list(self._changed)
        by_template = not names or (was is not None and not self._past.counts[was])
        words = [describe_changed_params({name: self._changed[name] for name in names})] if names else []
        if by_template and self._template_changed:
            words.append("the template changed" if not names else "the template changed too")
        return ", and ".join(words) or None


def render_templates(templates: Sequence[Template], values: Mapping[str, Any]) -> RenderedPrompt | None:
    """Render the templates as one prompt. None: there are none, or rendering fails with these values."""
    lines: list[PromptLine] = []
    for template in templates:
        try:
            own = render_template_lines(template.source, values)
        except TemplateRenderError:
            return None
        lines += [*([PromptLine("")] if lines else []), *(PromptLine(line.text, template, line) for line in own)]
    return RenderedPrompt(lines, Counter(line.text for line in lines)) if lines else None


def _line_difference(
    kind: DifferenceKind, name: str, was: str | None, now: str | None, line: int, *, alone: bool
) -> RequestDifference:
    """`line`: from 0, in the recorded prompt if there is no line now."""
    place = f"{name} line {line + 1}{' of the cassette' if now is None else ''}"
    if alone and kind == "input":
        place = "the message"
    one, two = excerpts(was or "", now or "")
    if was is None:
        words = f'{place} is new: "{two}"'
    elif now is None:
        words = f'{place} was removed: "{one}"'
    elif was == now:
        words = f"{place} differs in a value that is masked because it may be a secret"
    else:
        words = f'{place} is "{two}", but the cassette has "{one}"'
    return RequestDifference(kind, place, words, None if was is None else one, None if now is None else two, line + 1)


def _pair_lines(was: list[str], now: list[str]) -> tuple[list[tuple[int | None, int | None]], bool]:
    """The lines that differ as (old, new) pairs, and whether there may be more."""
    start, end = common_ends(was, now)
    one, two = was[start : len(was) - end], now[start : len(now) - end]
    cut = max(len(one), len(two)) > MAX_WINDOW and min(len(one), len(two)) > 0
    if cut:
        one, two = one[:MAX_WINDOW], two[:MAX_WINDOW]
    pairs = pair_changed_lines(one, two)
    shifted = ((None if old is None else start + old, None if new is None else start + new) for old, new in pairs)
    return list(shifted), cut
