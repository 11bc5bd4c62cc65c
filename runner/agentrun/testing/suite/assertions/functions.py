"""Claims that are functions of the project.

    def is_polite(run: Evidence) -> str | None:
        return None if "please" in (run.output or "") else "it does not say please"

Rule 1  A function is found and imported as Python tools are, and given a copy: it can change nothing for others.
Rule 2  None and True: the claim holds. False, a text, or an AssertionError: it does not, and that is why. Anything else
        that it returns or raises is a mistake in the function, which is told with its place, with `not-` too.
Rule 3  It has no network in a replay and with CI set, unless the assertion says `network: true`: the verdict on an
        unchanged cassette must not depend on a server. What it tries is told, with `not-` too.
Rule 4  What it prints is shown only with a complaint: the output of the process is for others.
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
from agentrun.tools.captured_output import capture_output
from agentrun.tools.pinned_modules import ImportFailed, import_function
from agentrun.tools.process_state import preserve_process_state

MAX_FUNCTION_TEXT = 300


class _FunctionPin(NamedTuple):
    module: str
    function: str
    source: str


def check_function(
    claim: types.PythonAssertion, evidence: Evidence, project: Project, *, may_reach: bool
) -> AssertionResult:
    """`may_reach`: whether it has the network without saying so."""
    with network_open() if claim.network or may_reach else network_closed() as attempts:
        try:
            finding = _call_function(claim, evidence, project)
        except CannotEvaluate:
            if not attempts:
                raise
            finding = None
    if finding is None or attempts:
        tried = evidence.quoted(attempts[0], MAX_FUNCTION_TEXT)
        message = f"{claim.value} tried to {tried}: an assertion has no network in a replay and with CI set"
        raise CannotEvaluate(message, "add `network: true` to the assertion; the report then says that it was live")
    return finding


def _call_function(claim: types.PythonAssertion, evidence: Evidence, project: Project) -> AssertionResult:
    function, name = _load_function(project, claim.value), claim.value
    seen = replace(evidence, params=deepcopy(evidence.params), calls=deepcopy(evidence.calls))
    raised: BaseException | None = None
    said: Any = None
    with capture_output() as output:
        try:
            said = function(seen)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the function's
            raised = error
        printed = output.end()
    if raised is not None and not isinstance(raised, AssertionError):
        raise CannotEvaluate(
            _add_printed(f"{name} fails: {_exception_text(evidence, project, name, raised)}", evidence, printed)
        )
    if isawaitable(said):
        if iscoroutine(said):
            said.close()
        raise CannotEvaluate(f"{name} is async", "write it as a plain function")
    if raised is None and not (said is None or isinstance(said, bool | str)):
        message = f"{name} returns {type(said).__name__}"
        raise CannotEvaluate(
            message, "return None or True when all is well, else False or a text that says what is wrong"
        )
    holds = raised is None and (said is None or said is True)

    def says() -> str:
        if holds:
            return f"{name} has no complaint"
        why = (
            _exception_text(evidence, project, name, raised)
            if raised
            else evidence.quoted(said or "", MAX_FUNCTION_TEXT)
        )
        return _add_printed(f"{name}: {why or 'it does not hold'}", evidence, printed)

    return AssertionResult(holds, says)


def _add_printed(line: str, evidence: Evidence, printed: str) -> str:
    shown = [evidence.quoted(f"  {each}", MAX_FUNCTION_TEXT) for each in printed.splitlines()[:20]]
    return "\n".join([line, *(["it printed:"] if shown else []), *shown])


def _exception_text(evidence: Evidence, project: Project, name: str, error: BaseException) -> str:
    """What it raised, and where in the project."""
    fault = fault_from_exception(name, error, roots=_import_roots(project))
    message, at = fault.message, fault.fields.get("at")
    if isinstance(error, AssertionError):
        message = message.removeprefix("AssertionError: ")
        if message == "AssertionError" and at is not None:  # it was given no words: its line says what it claims
            message = _source_line(project, at) or message
    return evidence.quoted(message if at is None else f"{message} ({at})", MAX_FUNCTION_TEXT)


def _source_line(project: Project, at: str) -> str:
    file, _, line = at.rpartition(":")
    found = (getline(str(root / file), int(line)).strip() for root in _import_roots(project))
    return next(filter(None, found), "")


def _import_roots(project: Project) -> list[Path]:
    return [project.root / root for root in project.import_roots]


@lru_cache(maxsize=256)
def _load_function(project: Project, reference: str) -> Any:
    """The function, imported once."""
    try:
        found = find_function(project, reference)
        with preserve_process_state():
            return import_function(
                _import_roots(project), reference, _FunctionPin(found.module, found.name, found.source), "assertion"
            )
    except FunctionRefused as refused:
        raise CannotEvaluate(refused.message, refused.hint) from None
    except ToolError as error:
        raise CannotEvaluate(error.message, error.hint) from None
    except ImportFailed as failed:
        fault = fault_from_exception(reference, failed.error, roots=_import_roots(project))
        place = f" ({fault.fields['at']})" if "at" in fault.fields else ""
        raise CannotEvaluate(f"{reference.partition(':')[0]} cannot be imported: {fault.message}{place}") from None
