"""How a case that did not pass is shown by pytest: in the words of `agentrun test`, without a traceback."""

from __future__ import annotations

from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

from agentrun.errors import SpecError
from agentrun.spec.problems import story
from agentrun.testing.suite.told import failure_text, shown
from agentrun.testing.suite.verdict import Verdict


class NotPassed(Exception):
    """A case did not pass."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(failure_text(verdict))


class FailedAsExpected(NotPassed):
    """It is known to fail, and does."""


def shown_failure(failed: NotPassed) -> ReprExceptionInfo:
    """The failure as pytest's own kind of text: no other survives the way from another process with its last line."""
    verdict = failed.verdict
    text = str(failed)
    place = ReprFileLocation(verdict.file, verdict.line, text.partition("\n")[0])
    lines = [*text.split("\n"), "", f"{verdict.file}:{verdict.line}: {verdict.status}"]
    whole = ReprTraceback([ReprEntryNative([f"{line}\n" for line in lines])], extraline=None, style="native")
    return ReprExceptionInfo(reprtraceback=whole, reprcrash=place)


def problems_text(error: SpecError) -> str:
    """All that is wrong in a file of cases, with places."""
    return "\n".join("\n".join(shown(story(problem))) for problem in error.problems)
