"""Ask the person at the terminal for approvals.

Rule 1  The answer is no, unless a person says yes to a question that was on the screen.
Rule 2  One question at a time. The time limit of an answer begins when the question is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import click

from agentrun.cli.keyboard import Keyboard
from agentrun.core.facts import ApprovalAnswer
from agentrun.core.outcome import Question
from agentrun.core.policy import split_reason
from agentrun.engine.approvals import DetailedQuestion
from agentrun.engine.kinds import sink_items, tool_items
from agentrun.engine.world import kind_tag
from agentrun.report import approval_question as sheets
from agentrun.report.approval_question import escape_name
from agentrun.report.formatting import OutputLine
from agentrun.report.screen import STYLES, OutputStream, SafeStream
from agentrun.spec.problems import escape_invisible
from agentrun.spec.v1.tools import TOOL_TEMPLATE_KEYS

ANSWERED_BY = "terminal"
APPROVAL_PROMPT = "Go ahead? [y/s/d/N] "
RETRY_PROMPT = "Please type y, s, d or n: "
MORE_PROMPT = "Enter shows more, q goes back: "
YES_WORDS, SESSION_WORDS, DETAILS_WORDS, NO_WORDS = ("y", "yes"), ("s", "session"), ("d", "details"), ("", "n", "no")
YIELDS_BEFORE_QUESTION = 4
"""How often other tasks run before a question is shown, so that the progress lines before it are printed first."""
STAGE_TITLES = {
    "input": "approval needed: send the input to the model",
    "output": "approval needed: return the answer",
}


class TerminalApprover:
    """Asks on standard error and reads the answer from standard input."""

    keeps_time = True

    def __init__(
        self,
        agent: str,
        lasting: str,
        stream: OutputStream,
        aside: Callable[[], AbstractContextManager[None]],
        *,
        color: bool,
    ) -> None:
        """`lasting`: how long a yes for the session is valid. `aside`: holds back all other output."""
        self._agent = agent
        self._lasting = lasting
        self._stream = SafeStream(stream)
        self._aside = aside
        self._color = color
        self._keyboard = Keyboard()
        self._turn = asyncio.Lock()

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        assert isinstance(question, DetailedQuestion)
        async with self._turn:
            for _ in range(YIELDS_BEFORE_QUESTION):
                await asyncio.sleep(0)
            if not self._keyboard.is_available():
                return "unavailable", "nobody"
            with self._aside():
                return await self._ask_in_time(question)

    async def _ask_in_time(self, question: DetailedQuestion) -> tuple[ApprovalAnswer, str]:
        end = asyncio.get_running_loop().time() + question.limit / 1000
        try:
            async with asyncio.timeout_at(end):
                return await self._ask(build_approval_question(question, self._agent), end), ANSWERED_BY
        except TimeoutError:
            self._stream.write(f"\nno answer within {_seconds(question.limit)} s: denied\n")
            return "timed_out", "clock"
        except asyncio.CancelledError:
            self._stream.write("\nthis question is no longer asked\n")
            raise
        finally:
            self._keyboard.end()

    async def _ask(self, sheet: sheets.ApprovalQuestion, end: float) -> ApprovalAnswer:
        self._show_question(sheet, end)
        prompt, unknown = APPROVAL_PROMPT, False
        while True:
            typed = await self._read_line(prompt)
            if typed is None:
                self._stream.write("\n")
                if self._keyboard.is_hung_up():
                    await asyncio.Future()  # SIGHUP parks or cancels the run; if it is ignored, the time runs out
                return "denied"
            word = typed.strip().lower()
            if word in YES_WORDS:
                return "approved"
            if word in SESSION_WORDS:
                return "approved_for_session"
            if word in NO_WORDS or (unknown and word not in DETAILS_WORDS):
                return "denied"
            if word in DETAILS_WORDS:
                await self._show_all(sheet)
                self._show_question(sheet, end)
            prompt, unknown = (APPROVAL_PROMPT, unknown) if word in DETAILS_WORDS else (RETRY_PROMPT, True)

    def _show_question(self, sheet: sheets.ApprovalQuestion, end: float) -> None:
        columns, height = self._stream.size()
        left = _seconds(1000 * (end - asyncio.get_running_loop().time()))
        below = sheets.choice_lines(self._lasting, left, columns - 1)
        self._write_lines([*sheets.short_question_lines(sheet, columns - 1, height, len(below) + 1), *below])

    async def _show_all(self, sheet: sheets.ApprovalQuestion) -> None:
        columns, height = self._stream.size()
        lines = sheets.full_question_lines(sheet, columns - 1)
        page = max(height - 2, 2)
        for start in range(0, len(lines), page):
            self._write_lines(lines[start : start + page])
            typed = await self._read_line(MORE_PROMPT) if start + page < len(lines) else ""
            if typed is None or typed.strip():
                return

    async def _read_line(self, prompt: str) -> str | None:
        self._keyboard.begin()  # the question is on the screen; discard everything typed before it
        self._stream.write(prompt)
        return await self._keyboard.read_line()

    def _write_lines(self, lines: list[OutputLine]) -> None:
        self._stream.write("".join(f"{self._style(line)}\n" for line in lines))

    def _style(self, line: OutputLine) -> str:
        return click.style(line.text, **STYLES[line.tone]) if self._color and STYLES[line.tone] else line.text


def _seconds(milliseconds: float) -> int:
    return max(round(milliseconds / 1000), 0)


def build_approval_question(question: DetailedQuestion, root: str) -> sheets.ApprovalQuestion:
    """The question as it is shown. `root`: the agent that the user started; other agents are named."""
    # The model of the parent writes the params of a sub-agent, and templates insert them.
    has_templates = question.tool is not None and kind_tag(question.tool) in TOOL_TEMPLATE_KEYS
    params = question.params if has_templates else None
    return sheets.make_question(_title(question), _notes(question, root), _items(question), question.value, params)


def _title(question: DetailedQuestion) -> str:
    name = escape_name(question.target)
    if question.sink is not None:
        return f"approval needed: send the answer to the sink {name}"
    if question.tool is None and question.target in STAGE_TITLES and question.subject == question.target:
        return STAGE_TITLES[question.target]
    return f"approval needed: run the tool {name}"


def _notes(question: DetailedQuestion, root: str) -> Iterator[sheets.QuestionItem]:
    if question.agent != root:
        yield sheets.text_item("agent", escape_name(question.agent))
    yield sheets.text_item("rule", ", ".join(map(escape_name, question.rules)) or "the policy's default")
    reason, failures = split_reason(question.reason)
    if reason:
        yield sheets.text_item("reason", escape_invisible(reason))
    for failure in failures:
        yield sheets.text_item("warning", escape_invisible(failure))


def _items(question: DetailedQuestion) -> Iterator[sheets.QuestionItem]:
    if question.sink is not None:
        yield from sink_items(question.sink)
    if question.tool is not None:
        yield from tool_items(question, question.tool)
    if not isinstance(question.value, dict):
        yield sheets.value_item("text", question.value)
        return
    for name, value in question.value.items():
        yield sheets.value_item("argument", value, name)
    if not question.value:
        yield sheets.text_item("argument", "none")
