"""All errors, as one tree.

    AgentrunError                 has a code, which decides the retry class and the exit code
    ├── SpecError                 mistakes in a spec: lists every problem with its place                   exit 2
    ├── PackageError              a compiled package is damaged, foreign or has another fingerprint        exit 2
    ├── HostError                 the machine lacks something that the package needs                       exit 2
    ├── RequestError              the request is invalid, or the session is busy or not finished      exit 2, 8 or 9
    ├── ProviderError             the model provider failed                                                exit 6
    ├── ToolError                 a tool failed in a way that ends the run                                 exit 6 or 8
    ├── LimitError                a budget, a guard or the context window stopped the run                  exit 5
    ├── PolicyError               the policy or an approval stopped the run                                exit 4
    ├── OutputError               the answer breaks its schema or could not be delivered                   exit 6
    ├── CassetteError             a cassette is missing, damaged or does not match                         exit 3
    ├── StorageError              a journal or the disk failed                                             exit 7
    ├── AuditError                the decisions of this release differ from the recorded ones              exit 1
    ├── Cancelled                 the caller cancelled the run                                             exit 130
    └── InternalError             a bug in agentrun                                                        exit 70

Rule 1  Codes are a contract; messages are not. Evidence is in `fields`, never only in the message.
Rule 2  Only codes listed in `ERROR_CODES` can be raised.
Rule 3  A message never contains a secret, and never more of a value than the reader needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

RetryClass = Literal["retryable", "not_retryable", "repair", "user", "host"]
"""What to do about an error: send again, give up, repair the data, ask the user or fix the host."""

SUSPENDED_EXIT = 8
"""Exit code of a run that waits for an approval or a decision. This is not an error: the run can be resumed."""
_GROUPS: dict[tuple[RetryClass, int], str] = {
    ("host", 2): "spec package.invalid package.fingerprint_mismatch host.missing provider.not_found",
    ("retryable", 6): (
        "provider.transient provider.timeout provider.overloaded provider.rate_limited"
        " provider.zero_output provider.empty delivery.failed"
    ),
    ("not_retryable", 6): "provider.decode tool.fatal tool.aborted output.invalid",
    ("user", 6): "provider.fatal tool.drift",
    ("repair", 6): "provider.context_overflow provider.inconsistent_history",
    ("repair", 5): "context.overflow",
    ("repair", 7): (
        "context.failed recovery.failed journal.damaged journal.truncated journal.poisoned journal.stale_owner"
    ),
    ("user", 5): "budget.turns budget.tokens budget.cost budget.time budget.tool_calls",
    ("not_retryable", 5): (
        "guard.parallel_tools guard.repeated_call guard.cycle guard.repeated_batch guard.stagnation guard.empty_outcome"
    ),
    ("not_retryable", 4): "tool.execution tool.timeout tool.denied",
    ("user", 8): "tool.indeterminate session.unfinished",
    ("user", 4): (
        "policy.denied policy.interrupted approval.denied approval.timed_out approval.unavailable approval.cancelled"
    ),
    ("user", 2): "input.rejected session.not_found",
    ("repair", 2): (
        "input.admission_failed run.not_found run.invalid_state run.invalid_continuation cursor.scope cursor.invalid"
    ),
    ("retryable", 9): "session.busy",
    ("not_retryable", 2): "run.duplicate session.duplicate",
    ("host", 7): "storage.failed storage.untrusted",
    ("repair", 1): "audit.diverged",
    ("user", 3): "cassette.miss cassette.damaged cassette.unused",
    ("not_retryable", 130): "cancelled",
    ("repair", 70): "internal",
}
TOOL_RESULT_CODES = ("tool.unknown", "tool.hidden", "tool.invalid_arguments", "tool.missing_field", "tool.invalid_call")
"""Codes that only appear in tool results. The model reads them, the tool did not run, and the run continues."""


class Code(NamedTuple):
    retry: RetryClass
    exit: int


ERROR_CODES: Mapping[str, Code] = {
    name: Code(retry, exit_code) for (retry, exit_code), names in _GROUPS.items() for name in names.split()
}
"""Every code that can end a run or a command. The entry `spec` covers all `spec.*` codes (see `spec/problems.py`)."""


def code_of(name: str) -> Code:
    return ERROR_CODES["spec" if name.startswith("spec.") else name]


class AgentrunError(Exception):
    """Base of all errors raised by agentrun."""

    codes: ClassVar[tuple[str, ...]] = ()
    """The code prefixes that this class accepts. Empty: any."""
    common_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that every error of this class has. Null: there is nothing to say, or it is not known."""

    def __init__(
        self, code: str, message: str, *, hint: str | None = None, fields: Mapping[str, Any] | None = None
    ) -> None:
        if self.codes and not code.startswith(self.codes):
            raise ValueError(f"{type(self).__name__} cannot carry the code {code!r}")
        self.retry, self.exit_code = code_of(code)
        self.code = code
        self.message = message
        self.hint = hint
        self.fields: dict[str, Any] = {**dict.fromkeys(self.common_fields), **(fields or {})}
        super().__init__(f"{code}: {message}")

    def as_json(self) -> dict[str, Any]:
        """The error as the commands print it with `--json`."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "fields": self.fields,
            "retry": self.retry,
            "exit": self.exit_code,
        }


class SpecError(AgentrunError):
    """A spec is wrong. `problems` has all mistakes with their places."""

    codes = ("spec",)
    common_fields = ("place", "pointer")

    def __init__(self, problems: Iterable[Any]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        super().__init__(first.code, f"{first.file}:{first.line}:{first.column} {first.message}{more}")
        self.fields |= {"place": str(first.place), "problems": [problem.as_json() for problem in self.problems]}


class PackageError(AgentrunError):
    """A package is damaged, or does not fit the request."""

    codes = ("package.",)
    common_fields = ("place", "pointer")


class HostError(AgentrunError):
    """Something that the agent needs is missing: a variable, a module, a command, a port."""

    codes = ("host.", "provider.not_found")


class RequestError(AgentrunError):
    """The input, the session, the run id or the cursor cannot be used."""

    codes = ("input.", "session.", "run.", "cursor.")


def run_duplicate_error(run: str) -> RequestError:
    return RequestError("run.duplicate", f"a run with the id {run} already exists", fields={"run": run})


def run_not_found_error(run: str) -> RequestError:
    return RequestError("run.not_found", f"there is no run {run}", fields={"run": run})


def open_run_error(run: str, status: str, asked: Sequence[str]) -> RequestError:
    """The run is not over. `asked`: the tools, sinks and stages that wait for an answer."""
    why = f"it waits for an answer about {', '.join(asked)}" if asked else "it can be resumed"
    fields = {"run": run, "expected": "completed", "actual": status, "questions": list(asked)}
    return RequestError("run.invalid_state", f"the run {run} is {status}: {why}", fields=fields)


def session_duplicate_error(name: str) -> RequestError:
    message = f"a session with the name {name} already exists"
    return RequestError("session.duplicate", message, fields={"session": name})


class ProviderError(AgentrunError):
    """A provider of models failed or refused a request."""

    codes = ("provider.",)


class ToolError(AgentrunError):
    """Raise this in a tool to choose the code and the message. Any other exception becomes `tool.execution`."""

    codes = ("tool.",)

    @classmethod
    def execution(cls, message: str, *, hint: str | None = None, **fields: Any) -> Self:
        """The call failed. The model reads the message and the run continues."""
        return cls("tool.execution", message, hint=hint, fields=fields)

    @classmethod
    def fatal(cls, message: str, *, hint: str | None = None, **fields: Any) -> Self:
        """The call failed and ends the run."""
        return cls("tool.fatal", message, hint=hint, fields=fields)

    @classmethod
    def aborted(cls, message: str, *, hint: str | None = None, **fields: Any) -> Self:
        """The tool aborted the call, which ends the run."""
        return cls("tool.aborted", message, hint=hint, fields=fields)


class LimitError(AgentrunError):
    """A budget, a guard or the context window stopped the run."""

    codes = ("budget.", "guard.", "context.")


class PolicyError(AgentrunError):
    """The policy or a person said no."""

    codes = ("policy.", "approval.")


class OutputError(AgentrunError):
    """The answer does not match its schema, or a sink did not accept it."""

    codes = ("output.", "delivery.")


class CassetteError(AgentrunError):
    """A cassette is missing, damaged, or does not fit."""

    codes = ("cassette.",)
    common_fields = ("turn", "nearest", "difference")


class StorageError(AgentrunError):
    """A journal or the store cannot be read or written."""

    codes = ("journal.", "storage.", "recovery.")


def storage_failed(
    kind: str, message: str, error: OSError | int | None = None, hint: str | None = None
) -> StorageError:
    """`kind`: what the file is (`cassette`, `journal`, …). `error`: the failure of the file system, or its errno."""
    number = error.errno if isinstance(error, OSError) else error
    return StorageError("storage.failed", message, hint=hint, fields={"path": kind, "errno": number})


class RecordRefused(StorageError):
    """A record is too large, or its journal is full. Nothing was written, and the run can still end."""


def poisoned_journal_error(seq: int) -> StorageError:
    message = "the journal cannot continue, because an earlier record could not be written"
    return StorageError("journal.poisoned", message, fields={"seq": seq})


class AuditError(AgentrunError):
    codes = ("audit.",)


class Cancelled(AgentrunError):
    codes = ("cancelled",)


class InternalError(AgentrunError):
    codes = ("internal",)


def error_with_code(
    code: str, message: str, *, hint: str | None = None, fields: Mapping[str, Any] | None = None
) -> AgentrunError:
    """An error of the class that the code belongs to."""
    kinds = [kind for kind in AgentrunError.__subclasses__() if kind is not SpecError and code.startswith(kind.codes)]
    kind = HostError if code in HostError.codes else kinds[0] if kinds else AgentrunError
    return kind(code, message, hint=hint, fields=fields)
