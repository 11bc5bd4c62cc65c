"""Assertions that are Python functions of the project.

Rule 1  A function is found and imported like a Python tool. It gets a copy of the evidence.
Rule 2  None and True mean that the assertion is true. False, a text or an AssertionError mean that it is false. Any
        other return value or exception is an error in the function, and fails the assertion with `not-` too.
Rule 3  A function has no network in a replay and in CI, unless the assertion has `network: true`, because the verdict
        on an unchanged cassette must not depend on a server. An attempt fails the assertion, with `not-` too.
"""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from inspect import isawaitable, iscoroutine
from linecache import getline
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentrun.compiler.python_functions import FunctionRefused, find_function
from agentrun.errors import ToolError
from agentrun.spec.project import Project
from agentrun.spec.v1 import assertions as types
from agentrun.testing.suite.assertions.network_guard import network_closed, network_open
from agentrun.testing.suite.assertions.result import AssertionResult, CannotEvaluate
from agentrun.testing.suite.evidence import Evidence
from agentrun.tools.call_results import fault_from_exception
from agentrun.tools.captured_output import capture_output, preserve_process_state
from agentrun.tools.pinned_modules import ImportFailed, import_function

MAX_FUNCTION_TEXT = 300


class _FunctionPin(NamedTuple):
    module: str
    function: str
    source: str


def check_function(
    assertion: types.PythonAssertion, evidence: Evidence, project: Project, *, may_reach: bool
) -> AssertionResult:
    """`may_reach`: whether it may use the network without `network: true`."""
    with network_open() if assertion.network or may_reach else network_closed() as attempts:
        try:
            result = _call_function(assertion, evidence, project)
        except CannotEvaluate:
            if not attempts:
                raise
            result = None
    if result is None or attempts:
        attempt = evidence.quoted(attempts[0], MAX_FUNCTION_TEXT)
        message = f"{assertion.value} tried to {attempt}, but assertions have no network in a replay and in CI"
        raise CannotEvaluate(message, "add `network: true` to the assertion; the report then lists it as live")
    return result


def _call_function(assertion: types.PythonAssertion, evidence: Evidence, project: Project) -> AssertionResult:
    function, name = _load_function(project, assertion.value), assertion.value
    copy = replace(evidence, params=deepcopy(evidence.params), calls=deepcopy(evidence.calls))
    raised: BaseException | None = None
    returned: Any = None
    with capture_output() as output:
        try:
            returned = function(copy)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # any exception of the function is reported
            raised = error
        printed = output.end()
    if raised is not None and not isinstance(raised, AssertionError):
        message = f"{name} fails: {_exception_text(evidence, project, name, raised)}"
        raise CannotEvaluate(_add_printed(message, evidence, printed))
    if isawaitable(returned):
        if iscoroutine(returned):
            returned.close()
        raise CannotEvaluate(f"{name} is async", "write it as a plain function")
    if raised is None and not (returned is None or isinstance(returned, bool | str)):
        hint = "return None or True if the assertion is true, else False or a text with the reason"
        raise CannotEvaluate(f"{name} returns {type(returned).__name__}", hint)
    holds = raised is None and (returned is None or returned is True)

    def describe() -> str:
        if holds:
            return f"{name} passes"
        if raised:
            reason = _exception_text(evidence, project, name, raised)
        else:
            reason = evidence.quoted(returned or "", MAX_FUNCTION_TEXT)
        return _add_printed(f"{name}: {reason or 'it returned no reason'}", evidence, printed)

    return AssertionResult(holds, describe)


def _add_printed(line: str, evidence: Evidence, printed: str) -> str:
    lines = [evidence.quoted(f"  {each}", MAX_FUNCTION_TEXT) for each in printed.splitlines()[:20]]
    return "\n".join([line, *(["it printed:"] if lines else []), *lines])


def _exception_text(evidence: Evidence, project: Project, name: str, error: BaseException) -> str:
    fault = fault_from_exception(name, error, roots=_import_roots(project))
    message, at = fault.message, fault.fields.get("at")
    if isinstance(error, AssertionError):
        message = message.removeprefix("AssertionError: ")
        if message == "AssertionError" and at is not None:  # an assert without a message: show its source line
            message = _source_line(project, at) or message
    return evidence.quoted(message if at is None else f"{message} ({at})", MAX_FUNCTION_TEXT)


def _source_line(project: Project, at: str) -> str:
    file, _, line = at.rpartition(":")
    lines = (getline(str(root / file), int(line)).strip() for root in _import_roots(project))
    return next(filter(None, lines), "")


def _import_roots(project: Project) -> list[Path]:
    return [project.root / root for root in project.import_roots]


@lru_cache(maxsize=256)
def _load_function(project: Project, reference: str) -> Any:
    try:
        function = find_function(project, reference)
        pin = _FunctionPin(function.module, function.name, function.source)
        with preserve_process_state():
            return import_function(_import_roots(project), reference, pin, "assertion")
    except (FunctionRefused, ToolError) as error:
        raise CannotEvaluate(error.message, error.hint) from None
    except ImportFailed as error:
        fault = fault_from_exception(reference, error.error, roots=_import_roots(project))
        place = f" ({fault.fields['at']})" if "at" in fault.fields else ""
        raise CannotEvaluate(f"{reference.partition(':')[0]} cannot be imported: {fault.message}{place}") from None
