"""Asks the person at the terminal.

Rule 1  The answer is no, unless a person says yes to a question that they could see.
Rule 2  One question at a time; the time for an answer begins when the question is shown.
Rule 3  The terminal is as before when the question is over, however it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

import click

from agentrun.cli.keyboard import Keyboard
from agentrun.cli.will_run import sheet_of
from agentrun.core.facts import ApprovalAnswer
from agentrun.core.outcome import Question
from agentrun.engine.approvals import Asked
from agentrun.report.approval_question import ApprovalQuestion, choice_lines, full_question_lines, short_question_lines
from agentrun.report.formatting import OutputLine
from agentrun.report.screen import STYLES, OutputStream, SafeStream

BY = "terminal"
PROMPT = "Go ahead? [y/s/d/N] "
AGAIN = "Please type y, s, d or n: "
MORE = "Enter shows more, q goes back: "
YES, SESSION, SHOW, NO = ("y", "yes"), ("s", "session"), ("d", "details"), ("", "n", "no")
STEPS = 4
"""How often others get their turn before a question is shown, so that the story has come to it."""


class Terminal:
    """An approver who is asked on standard error and answers on standard input."""

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
        """`lasting`: for how long a yes for the session holds. `aside`: holds back everything else that is shown."""
        self._agent = agent
        self._lasting = lasting
        self._outlet = SafeStream(stream)
        self._aside = aside
        self._color = color
        self._keyboard = Keyboard()
        self._turn = asyncio.Lock()

    async def answer(self, question: Question) -> tuple[ApprovalAnswer, str]:
        assert isinstance(question, Asked)
        async with self._turn:
            for _ in range(STEPS):
                await asyncio.sleep(0)
            if not self._keyboard.is_there():
                return "unavailable", "nobody"
            with self._aside():
                return await self._in_time(question)

    async def _in_time(self, asked: Asked) -> tuple[ApprovalAnswer, str]:
        end = asyncio.get_running_loop().time() + asked.limit / 1000
        try:
            async with asyncio.timeout_at(end):
                return await self._asked(sheet_of(asked, self._agent), end), BY
        except TimeoutError:
            self._write(f"\nno answer within {_seconds(asked.limit)} s: no\n")
            return "timed_out", "clock"
        except asyncio.CancelledError:
            self._write("\n")
            raise
        finally:
            self._keyboard.end()

    async def _asked(self, sheet: ApprovalQuestion, end: float) -> ApprovalAnswer:
        self._show_question(sheet, end)
        prompt, unknown = PROMPT, False
        while True:
            typed = await self._line(prompt)
            if typed is None:
                self._write("\n")
                return "denied"
            word = typed.strip().lower()
            if word in YES:
                return "approved"
            if word in SESSION:
                return "approved_for_session"
            if word in NO or (unknown and word not in SHOW):
                return "denied"
            if word in SHOW:
                await self._show_all(sheet)
                self._show_question(sheet, end)
            prompt, unknown = (PROMPT, unknown) if word in SHOW else (AGAIN, True)

    def _show_question(self, sheet: ApprovalQuestion, end: float) -> None:
        columns, height = self._outlet.size()
        left = _seconds(1000 * (end - asyncio.get_running_loop().time()))
        below = choice_lines(self._lasting, left, columns - 1)
        self._lines([*short_question_lines(sheet, columns - 1, height, len(below) + 1), *below])

    async def _show_all(self, sheet: ApprovalQuestion) -> None:
        columns, height = self._outlet.size()
        lines = full_question_lines(sheet, columns - 1)
        page = max(height - 2, 2)
        for start in range(0, len(lines), page):
            self._lines(lines[start : start + page])
            typed = await self._line(MORE) if start + page < len(lines) else ""
            if typed is None or typed.strip():
                return

    async def _line(self, prompt: str) -> str | None:
        self._keyboard.begin()  # the question is on the screen: from here on its answer is typed
        self._write(prompt)
        return await self._keyboard.line()

    def _lines(self, lines: list[OutputLine]) -> None:
        self._write("".join(f"{self._styled(line)}\n" for line in lines))

    def _styled(self, line: OutputLine) -> str:
        return click.style(line.text, **STYLES[line.tone]) if self._color and STYLES[line.tone] else line.text

    def _write(self, text: str) -> None:
        self._outlet.write(text)


def _seconds(milliseconds: float) -> int:
    return max(round(milliseconds / 1000), 0)
