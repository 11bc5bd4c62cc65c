"""`--junit FILE`: the results as JUnit XML, in the format junit-10, which Jenkins validates and others read."""

from __future__ import annotations

import re
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from agentrun.cli.suite_result import UNUSED_SNAPSHOT, SuiteResult
from agentrun.testing.suite.failure_text import render_failure
from agentrun.testing.suite.verdict import CaseVerdict

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
