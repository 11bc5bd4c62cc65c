"""How a run begins: the only place where a request becomes a run, whoever asks for it.

1  the package: found, merged with the request's output contract, valid, of the agent that was asked for, unchanged
2  a provider for each route; every hook, executor and sink that the package names
3  the request is admitted: its input is not empty, too long or a duplicate
4  the policy on starting: only `allow` passes
5  `run_started` is written. Accepted means journaled.

A replay brings a world with all of 2, and a child has its package from its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import fingerprint, sorted_json, text_hash
from agentrun.compiler.package_file import PackageFile, seal_package
from agentrun.compiler.prompts import complete_params, render_input, render_instructions, render_prompt
from agentrun.core.facts import RULES_VERSION, EarlierRuns, Record, RunStarted
from agentrun.core.messages import Assistant, Text, User
from agentrun.core.package import Package
from agentrun.core.package_lookup import tool_command
from agentrun.core.package_validation import validate_package
from agentrun.core.policy import PolicyDecision, condition_variables, evaluate_policy
from agentrun.core.state import State
from agentrun.engine.driver import RunLog, open_run_log
from agentrun.engine.request import Request, rejected_input_error, store_attachments
from agentrun.engine.sessions import Session
from agentrun.engine.sessions import earlier_runs as earlier_of
from agentrun.engine.world import World, find_missing_port
from agentrun.errors import AgentrunError, PackageError, PolicyError, RequestError


class StartPolicy(Protocol):
    """Says whether a run may start."""

    def ruling(self, package: Package, started: RunStarted) -> PolicyDecision: ...


class PackagePolicy:
    """What the package's own rules for the stage `run_start` say."""

    def ruling(self, package: Package, started: RunStarted) -> PolicyDecision:
        return start_ruling(package, started)


def begin(
    world: World,
    package: Package,
    request: Request,
    admitted: AdmittedRequest,
    *,
    earlier: EarlierRuns = EarlierRuns(),  # noqa: B008  # frozen
    policy: StartPolicy = PackagePolicy(),  # noqa: B008  # it has no state
    register: Callable[[], None] = lambda: None,
    log: RunLog | None = None,
) -> RunLog:
    """Begin the run of a world: rule on its start, and write its first record.

    `register` is called in between, and may raise to refuse the run. `log`: that of the run, if it is open already.
    Raises `policy.denied`, `policy.interrupted`.
    """
    started = make_run_started(world, package, request, admitted, earlier)
    refuse_unless_allowed(policy.ruling(package, started), started)
    register()
    log = log or open_run_log(world)
    log.commit(started)
    return log


def make_run_started(
    world: World,
    package: Package,
    request: Request,
    admitted: AdmittedRequest,
    earlier: EarlierRuns = EarlierRuns(),  # noqa: B008  # frozen
) -> RunStarted:
    """The first fact of a run."""
    commands = [command for tool in package.tools.values() if (command := tool_command(tool)) is not None]
    found = {command: world.programs[command] for command in sorted(commands) if command in world.programs}
    message = admitted.message
    return RunStarted(
        run=world.run,
        package=request.package if isinstance(request.package, str) else request.package.fingerprint,
        replayed=world.replayed,
        agent=package.name,
        rules=RULES_VERSION,
        params=admitted.params,
        instructions=admitted.instructions,
        input=None if message is None else User((Text(message), *store_attachments(world.blobs, request.attachments))),
        prompts=admitted.prompts,
        earlier=earlier,
        parent=request.parent,
        seed=UNSET if request.seed is None else request.seed,
        programs=found or UNSET,
    )


def start_ruling(package: Package, started: RunStarted) -> PolicyDecision:
    """What the package's own rules say about starting."""
    return evaluate_policy(package, "run_start", "run_start", condition_variables(State(start=started)))


def refuse_unless_allowed(verdict: PolicyDecision, started: RunStarted) -> None:
    """Only `allow` starts a run. Raises `policy.denied` or `policy.interrupted`."""
    if verdict.ruling == "allow":
        return
    code = "policy.interrupted" if verdict.ruling == "interrupt" else "policy.denied"
    message = verdict.reason or f"the policy rules {verdict.ruling} on starting the run"
    fields = {"run": started.run, "rules": list(verdict.rules), "ruling": verdict.ruling}
    raise PolicyError(code, message, fields=fields)


# --- the package ------------------------------------------------------------------------------------------------


def find_package(packages: Mapping[str, PackageFile], request: Request) -> PackageFile:
    """The package that a request would run with."""
    file = _find_by_fingerprint(packages, request.package)
    package = file.agent if request.output is None else _with_output_schema(file.agent, request.output)
    validate_package(package)
    if package.name != request.agent:
        fields = {"pointer": "/name", "expected": request.agent, "actual": package.name}
        raise PackageError("package.invalid", f"the package is of the agent {package.name!r}", fields=fields)
    refuse_changed_package(file)
    return file if package is file.agent else seal_package(package)


def _find_by_fingerprint(packages: Mapping[str, PackageFile], wanted: PackageFile | str) -> PackageFile:
    if isinstance(wanted, PackageFile):
        return wanted
    if wanted not in packages:
        message = f"the runtime has no package {wanted}"
        raise PackageError("package.invalid", message, fields={"place": wanted})
    return packages[wanted]


def _with_output_schema(package: Package, schema: dict[str, Any]) -> Package:
    """The package with another contract. One that it has already is replaced by a schema of the same id only."""
    present = package.output.schema
    if (
        present is not None
        and present != schema
        and (_schema_id(present) is None or _schema_id(present) != _schema_id(schema))
    ):
        message = "the package has an output contract, and the request's is not a version of it"
        fields = {"pointer": "/output/schema", "expected": _schema_id(present), "actual": _schema_id(schema)}
        raise PackageError("package.invalid", message, hint="give both schemas one `title`", fields=fields)
    return replace(package, output=replace(package.output, schema=schema))


def _schema_id(schema: dict[str, Any]) -> Any:
    """A schema's id. Schemas are compiled without `$id`, so the title stands for it."""
    return schema.get("$id", schema.get("title"))


def refuse_changed_package(file: PackageFile) -> None:
    """Refuse a package that is not what its fingerprint says."""
    found = fingerprint(file.agent)
    if found != file.fingerprint:
        raise PackageError(
            "package.fingerprint_mismatch",
            "the package is not what its fingerprint says",
            fields={"pinned": file.fingerprint, "found": found},
        )


# --- what it needs ----------------------------------------------------------------------------------------------


def refuse_missing_ports(world: World, package: Package) -> None:
    """Refuse a package that names what the world does not have. Raises `host.missing`, `provider.not_found`."""
    if lack := find_missing_port(world, package):
        lack.fields["run"] = world.run
        raise lack


# --- its input --------------------------------------------------------------------------------------------------


def admit_request(
    package: Package, request: Request, run: str, session: Session, read: Callable[[str], Iterable[Record]]
) -> tuple[EarlierRuns, AdmittedRequest]:
    """What a run knows of its session, and the request as it may run. `read`: the journals of the session's runs.

    Raises `input.rejected`, `run.invalid_continuation`, `input.admission_failed`.
    """
    input_id = f"{run}.1"
    try:
        before = earlier_of(session.runs, package.session, read)
        before = replace(before, messages=(*before.messages, *request.history))
        admitted = admit(package, request.message, request.params, goes_on=request.goes_on)
        if admitted.message is None:
            refuse_without_open_message(before)
        else:
            refuse_duplicate_input(package, session, admitted.message, input_id)
    except AgentrunError as error:
        error.fields.setdefault("input_id", input_id)
        raise
    except Exception as error:
        fields = {"input_id": input_id, "reason": type(error).__name__, "run": run}
        message = f"{type(error).__name__} while the input was looked at"
        raise RequestError("input.admission_failed", message, fields=fields) from error
    return before, admitted


def refuse_without_open_message(before: EarlierRuns) -> None:
    """Refuse to go on with a conversation in which nothing waits for an answer."""
    last = before.messages[-1] if before.messages else None
    if last is None or isinstance(last, Assistant):
        message = "there is no input, and nothing in the conversation waits for an answer"
        fields = {"expected": "user or tool", "actual": "empty" if last is None else "assistant"}
        raise RequestError("run.invalid_continuation", message, fields=fields)


def refuse_duplicate_input(package: Package, session: Session, text: str, input_id: str) -> None:
    if package.admission.dedupe and session.has_seen(text):
        raise rejected_input_error("duplicate", "the same message was sent in this session before", input_id)


# --- whether a request may become a run, and what it says -----------------------------------------------------


class AdmittedRequest(Struct, frozen=True):
    """A request that may run."""

    params: dict[str, Any]
    instructions: str
    message: str | None
    """None: the conversation before goes on as it is."""
    prompts: dict[str, str]
    """What the runtime may tell the model."""


def admit(
    package: Package, message: str | None, params: Mapping[str, Any], *, goes_on: bool = False
) -> AdmittedRequest:
    """Check a request against its package. Raises `input.rejected`.

    With `goes_on` a request without a message goes on with the conversation before; otherwise it says the package's
    own input.
    """
    values = complete_params(package, params)
    if message is None and not goes_on:
        message = render_input(package, values)
    return AdmittedRequest(
        params=values,
        instructions=render_instructions(package, values),
        message=None if message is None and goes_on else _check_message(package, message),
        prompts=_render_prompts(package, values),
    )


def jitter_seed(package: Package, admitted: AdmittedRequest) -> str:
    """What jitter is made of in a run that is recorded and in its replays: they wait equally long."""
    return text_hash(sorted_json([package.name, admitted.params, admitted.message]))[7:23]


def _render_prompts(package: Package, values: Mapping[str, Any]) -> dict[str, str]:
    """Only those that this package can come to need."""
    found = {}
    if package.guards.empty_outcome is not None:
        found["nudge"] = render_prompt(package.guards.nudge, values, "guards.nudge")
    if package.context.overflow == "compact":
        found["compact"] = render_prompt(package.context.prompt, values, "context.compaction.prompt")
    return found


def _check_message(package: Package, message: str | None) -> str:
    if message is None or not message.strip():
        hint = None if message is not None else "give a message, or an `input` in the spec"
        raise _rejected_message_error("empty", "there is no message to send", hint)
    limit = package.admission.max_chars
    if limit is not None and len(message) > limit:
        raise _rejected_message_error(
            "too_long", f"the message has {len(message)} characters; {limit} are allowed", limit=limit
        )
    return message


def _rejected_message_error(reason: str, message: str, hint: str | None = None, **fields: Any) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": reason, **fields})
