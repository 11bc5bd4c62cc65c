"""Reports of a suite for CI: annotations and a Markdown summary on GitHub Actions, and JUnit XML with `--junit FILE`.

Rule 1  Only this file writes workflow commands. They are disabled in all other output.
Rule 2  Text of models and tools is data: it is escaped for its place, and cannot mention a user.
Rule 3  The XML has the format junit-10, which Jenkins validates and others read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from secrets import token_hex
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from agentrun.cli.console import safe_text
from agentrun.cli.suite_result import (
    CHANGED_TOOLS_TITLE,
    CHANGES_TITLE,
    LIVE_TITLE,
    UNUSED_SNAPSHOT,
    UNUSED_SNAPSHOTS,
    SuiteResult,
)
from agentrun.testing.suite.causes import group_by_cause
from agentrun.testing.suite.failure_text import render_failure
from agentrun.testing.suite.verdict import CaseVerdict

MAX_SUMMARY_ROWS = 200
MAX_CELL_LENGTH = 300
_MARKUP = re.compile(r"([\\`*_{}\[\]#+!|<>~$&@:])")


def is_github(environment: Mapping[str, str]) -> bool:
    return environment.get("GITHUB_ACTIONS") == "true"


def disable_commands(lines: Iterator[str]) -> Iterator[str]:
    """The lines with workflow commands disabled, because a model may have written one."""
    token = token_hex(16)
    yield f"::stop-commands::{token}"
    yield from lines
    yield f"::{token}::"


def error_annotations(suite_result: SuiteResult, environment: Mapping[str, str]) -> Iterator[str]:
    """One for each line that changed or assertion that failed, one for each case that failed for an unknown line, and
    one for each snapshot without a case."""
    annotated: set[str] = set()
    for cause in suite_result.causes:
        if cause.file is not None and cause.line is not None:
            annotated |= {verdict.id for verdict in cause.verdicts}
            lines = [*cause.texts, *(cause.case_lines if len(cause.verdicts) > 1 else ())]
            text = "\n".join(map(safe_text, [*lines, *([f"→ {cause.hint}"] if cause.hint else [])]))
            title = cause.heading if len(cause.verdicts) > 1 else _case_title(cause.verdicts[0])
            yield _error_command(cause.file, cause.line, title, text, environment)
    for verdict in suite_result.verdicts:
        if verdict.is_bad and verdict.id not in annotated:
            wrong = verdict.failures[0]
            text = "\n".join(f"{each.assertion}: {safe_text(each.message)}" for each in verdict.failures)
            hint = f"\n→ {safe_text(wrong.hint)}" if wrong.hint else ""
            yield _error_command(verdict.file, verdict.line, _case_title(verdict), text + hint, environment)
    for path in suite_result.unused_snapshots:
        yield _error_command(path, 1, "unused snapshot", UNUSED_SNAPSHOT, environment)


def _case_title(verdict: CaseVerdict) -> str:
    return f"{verdict.status}: {verdict.id.partition('::')[2] or verdict.id}"


def _error_command(file: str, line: int, title: str, text: str, environment: Mapping[str, str]) -> str:
    place = {"file": _repository_path(file, environment), "line": str(line), "title": safe_text(title)}
    properties = ",".join(f"{name}={_escape_property(value)}" for name, value in place.items())
    return f"::error {properties}::{_escape_data(text)}"


def _repository_path(file: str, environment: Mapping[str, str]) -> str:
    """The path from the root of the repository; the step may run in a subfolder."""
    root = environment.get("GITHUB_WORKSPACE")
    full = Path(os.path.abspath(file))
    return full.relative_to(root).as_posix() if root and full.is_relative_to(root) else file


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def summary_markdown(suite_result: SuiteResult) -> str:
    """Markdown: the counts, why cases failed, what changed, and the cases that failed."""
    lines = ["### agentrun test", "", _escape_markdown(suite_result.counts_text), ""]
    causes = [f"- {_escape_markdown(cause.heading)}" for cause in suite_result.causes[:MAX_SUMMARY_ROWS]]
    lines += [*causes, ""] if causes else []
    sections = (
        (CHANGES_TITLE, suite_result.accepted_changes),
        (CHANGED_TOOLS_TITLE, suite_result.changed_tools),
        (LIVE_TITLE, suite_result.live),
    )
    for title, cases in sections:
        rows = [f"- {_escape_markdown(text)} ({len(ids)})" for text, ids in list(cases.items())[:MAX_SUMMARY_ROWS]]
        lines += [title, "", *rows, ""] if rows else []
    bad = [verdict for verdict in suite_result.verdicts if verdict.is_bad]
    if bad:
        lines += ["| case | verdict | why |", "| --- | --- | --- |", *map(_table_row, bad[:MAX_SUMMARY_ROWS])]
        lines += [f"| {len(bad) - MAX_SUMMARY_ROWS} more | | |"] if len(bad) > MAX_SUMMARY_ROWS else []
        lines.append("")
    if suite_result.unused_snapshots:
        lines += [UNUSED_SNAPSHOTS, "", *(f"- {_escape_markdown(path)}" for path in suite_result.unused_snapshots), ""]
    if suite_result.coverage is not None:
        lines += [f"Coverage: {suite_result.coverage.percent:g} %", ""]
    return "\n".join(lines) + "\n"


def _table_row(verdict: CaseVerdict) -> str:
    why = "; ".join(cause.title for cause in group_by_cause([verdict]))
    return f"| {_escape_markdown(verdict.id)} | {verdict.status} | {_escape_markdown(why)} |"


def _escape_markdown(text: str) -> str:
    shown = safe_text(" ".join(text.split()))
    shown = shown if len(shown) <= MAX_CELL_LENGTH else shown[: MAX_CELL_LENGTH - 1] + "…"
    return _MARKUP.sub(lambda sign: f"&#{ord(sign[1])};", shown)


_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
JUNIT_NAME = "agentrun"


def junit_xml(suite_result: SuiteResult, version: str) -> bytes:
    suites = Element("testsuites", name=JUNIT_NAME)
    for file, found in groupby(sorted(suite_result.verdicts, key=lambda each: each.file), key=lambda each: each.file):
        _add_suite(suites, file, list(found), version)
    if suite_result.unused_snapshots:
        suite = _add_suite_element(suites, "snapshots", [], version)
        count = str(len(suite_result.unused_snapshots))
        suite.attrib |= {"tests": count, "failures": count}
        for path in suite_result.unused_snapshots:
            case = SubElement(suite, "testcase", classname="snapshots", name=_valid_xml(path), time="0.000")
            SubElement(case, "failure", type="snapshot", message=UNUSED_SNAPSHOT)
    total = [suite.attrib for suite in suites]
    for key in ("tests", "failures", "errors"):
        suites.set(key, str(sum(int(each[key]) for each in total)))
    suites.set("time", f"{sum(float(each['time']) for each in total):.3f}")
    indent(suites)
    text: str = tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _add_suite_element(suites: Element, name: str, verdicts: list[CaseVerdict], version: str) -> Element:
    statuses = [verdict.status for verdict in verdicts]
    suite = SubElement(
        suites,
        "testsuite",
        name=_valid_xml(name),
        tests=str(len(verdicts)),
        failures=str(statuses.count("failed")),
        errors=str(statuses.count("missed") + statuses.count("unreadable")),
        skipped=str(statuses.count("skipped") + statuses.count("xfailed")),
        time=f"{sum(verdict.seconds for verdict in verdicts):.3f}",
    )
    properties = SubElement(suite, "properties")
    SubElement(properties, "property", name="agentrun", value=version)
    return suite


def _add_suite(suites: Element, file: str, verdicts: list[CaseVerdict], version: str) -> None:
    suite = _add_suite_element(suites, file, verdicts, version)
    for verdict in verdicts:
        name = verdict.id.partition("::")[2] or verdict.id
        case = SubElement(
            suite, "testcase", classname=_valid_xml(file), name=_valid_xml(name), time=f"{verdict.seconds:.3f}"
        )
        _add_verdict(case, verdict)


def _add_verdict(case: Element, verdict: CaseVerdict) -> None:
    if verdict.status in ("skipped", "xfailed"):
        SubElement(case, "skipped", type=verdict.status, message=_valid_xml(verdict.reason or ""))
    elif verdict.is_bad:
        kind = "failure" if verdict.status == "failed" else "error"
        wrong = verdict.failures[0]
        found = SubElement(case, kind, type=_valid_xml(wrong.assertion), message=_valid_xml(wrong.message))
        file, line = verdict.failure_place
        found.text = _valid_xml(f"{file}:{line}\n{render_failure(verdict)}")
    lines = [
        *(change.text for change in verdict.changes),
        *(f"live assertion (network: true): {function}" for function in verdict.live),
    ]
    if verdict.spent:
        lines.append(", ".join(f"{name} {value}" for name, value in verdict.spent.items()))
    if verdict.tier is not None:
        lines.append(f"matched {verdict.tier}")
    if lines:
        SubElement(case, "system-out").text = _valid_xml("\n".join(lines))


def _valid_xml(text: str) -> str:
    return _NO_XML.sub("", text)
