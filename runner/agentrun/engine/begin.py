"""The start of a run. This is the only place where a request becomes a run.

1  Find the package, apply the output schema of the request, and check that it is valid, unchanged and of this agent.
   The package of a sub-agent is a part of its parent's and was checked with it.
2  Check that there is a provider for each route, and every hook, executor and sink that the package names.
3  Admit the request: its input is not empty, not too long and not a duplicate.
4  Ask the policy for the stage `run_start`: only `allow` passes.
5  Check that there is no run with the same id.
6  Store the package and write `run_started`. From then on the run exists. Whatever can refuse it comes before this.

`find_package` is step 1, `check_start` is steps 2 to 5, and `begin` is step 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import fingerprint, sorted_json, text_hash
from agentrun.compiler.package_file import PackageFile, package_bytes, seal_package
from agentrun.compiler.prompts import complete_params, render_input, render_instructions, render_prompt
from agentrun.core import model_texts as texts
from agentrun.core.facts import RULES_VERSION, EarlierRuns, Record, RunStarted, StandIns
from agentrun.core.messages import Assistant, Text, User
from agentrun.core.package import Package, tool_command
from agentrun.core.package_validation import validate_package
from agentrun.core.policy import PolicyDecision, condition_variables, evaluate_policy
from agentrun.core.state import State
from agentrun.engine.driver import RunLog, open_run_log
from agentrun.engine.request import Request, store_attachments
from agentrun.engine.sessions import Session, earlier_runs, refuse_continuation
from agentrun.engine.world import World, find_missing_port
from agentrun.errors import AgentrunError, PackageError, PolicyError, RequestError, run_duplicate_error

PackageResolver: TypeAlias = Callable[[Request], PackageFile | None]
"""Finds the package of a request. None: there is none."""


class StartPolicy(Protocol):
    def ruling(self, package: Package, started: RunStarted, now: int) -> PolicyDecision:
        """`now`: the time of the check, in milliseconds since 1970."""


class PackagePolicy:
    def ruling(self, package: Package, started: RunStarted, now: int) -> PolicyDecision:
        return evaluate_policy(package, "run_start", "run_start", condition_variables(State(start=started, now=now)))


def check_start(
    world: World,
    package: Package,
    request: Request,
    session: Session | None = None,
    *,
    policy: StartPolicy = PackagePolicy(),  # noqa: B008  # it has no state
) -> RunStarted:
    """The first fact of a run that may start. Raises `host.missing`, `provider.not_found`, `input.*`,
    `run.invalid_continuation`, `session.unfinished`, `policy.*`, `run.duplicate`."""
    refuse_missing_ports(world, package)
    session = session or Session()
    earlier, admitted = _admit_request(package, request, world.run, session, session.read or world.journals.records)
    started = make_run_started(world, package, request, admitted, earlier)
    if session.name is not None and session.runs:
        started = replace(started, predecessor=session.runs[-1])
    _refuse_by_policy(package, started, policy, world.clock.now())
    if world.run in world.journals:
        raise run_duplicate_error(world.run)
    return started


def _refuse_by_policy(package: Package, started: RunStarted, policy: StartPolicy, now: int) -> None:
    verdict = policy.ruling(package, started, now)
    if verdict.ruling != "allow":
        code = "policy.interrupted" if verdict.ruling == "interrupt" else "policy.denied"
        message = verdict.reason or texts.START_DENIED.format(verdict.ruling)
        fields = {"run": started.run, "rules": list(verdict.rules), "ruling": verdict.ruling}
        raise PolicyError(code, message, fields=fields)


def begin(world: World, started: RunStarted, package: PackageFile | None = None, log: RunLog | None = None) -> RunLog:
    """`package`: stored with the run; None: that of its parent contains it. `log`: None if it is not open yet."""
    if package is not None:
        keep_package(world, package)
    log = log or open_run_log(world)
    log.commit(started)
    return log


def keep_package(world: World, package: PackageFile) -> None:
    """Store the package with the run, unless a known secret is written in it. Then it must be named to resume."""
    if not world.redactor.changes(package_bytes(package)):
        world.journals.keep(world.run, package)


def make_run_started(
    world: World,
    package: Package,
    request: Request,
    admitted: AdmittedRequest,
    earlier: EarlierRuns = EarlierRuns(),  # noqa: B008  # frozen
) -> RunStarted:
    commands = {tool_command(tool) for tool in package.tools.values()}
    programs = {command: file for command, file in sorted(world.programs.items()) if command in commands}
    message = admitted.message
    return RunStarted(
        run=world.run,
        package=request.package.fingerprint if isinstance(request.package, PackageFile) else request.package or "",
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
        programs=programs or UNSET,
        session=request.session or UNSET,
        stand_ins=world.stand_ins,
    )


def find_package(
    packages: Mapping[str, PackageFile],
    request: Request,
    resolve: PackageResolver | None = None,
    default: PackageFile | None = None,
) -> PackageFile:
    """`resolve`: asked for a package that is neither in the request nor in `packages`. `default`: for a request that
    names no package, if `resolve` has none. Raises `package.*`."""
    file = _resolve_package(packages, request, resolve, default)
    package = file.agent if request.output is None else _with_output_schema(file.agent, request.output)
    validate_package(package)
    if package.name != request.agent:
        fields = {"pointer": "/name", "expected": request.agent, "actual": package.name}
        message = f"the package is for the agent {package.name!r}, but the request is for {request.agent!r}"
        raise PackageError("package.invalid", message, fields=fields)
    refuse_changed_package(file)
    return file if package is file.agent else seal_package(package)


def _resolve_package(
    packages: Mapping[str, PackageFile],
    request: Request,
    resolve: PackageResolver | None,
    default: PackageFile | None,
) -> PackageFile:
    wanted = request.package
    if isinstance(wanted, PackageFile):
        return wanted
    if wanted is not None and wanted in packages:
        return packages[wanted]
    found = None if resolve is None else _ask_resolver(resolve, request)
    if found is not None and wanted not in (None, found.fingerprint):
        fields = {"pinned": wanted, "found": found.fingerprint}
        message = "the package resolver returned a package with another fingerprint"
        raise PackageError("package.fingerprint_mismatch", message, fields=fields)
    if found is None and wanted is None:
        found = default
    if found is None:
        message = f"the runtime has no package with the fingerprint {wanted}"
        if wanted is None:
            message = f"the request names no package, and the runtime has none for the agent {request.agent!r}"
        raise PackageError("package.invalid", message, fields={"place": wanted})
    return found


def _ask_resolver(resolve: PackageResolver, request: Request) -> PackageFile | None:
    fields = {"place": request.package, "agent": request.agent}
    try:
        found: object = resolve(request)
    except AgentrunError:
        raise
    except Exception as error:
        message = f"the package resolver failed: {type(error).__name__}"
        raise PackageError("package.invalid", message, fields={**fields, "error": type(error).__name__}) from error
    if found is not None and not isinstance(found, PackageFile):
        message = f"the package resolver returned {type(found).__name__}, which is no package"
        raise PackageError("package.invalid", message, fields=fields)
    return found


@contextmanager
def name_run_in_errors(run: str) -> Iterator[None]:
    """In every error of a run that cannot start or continue, `run` is this run. Another run that is the reason, such as
    one of the same session, is in `blocking_run`."""
    try:
        yield
    except AgentrunError as error:
        if (other := error.fields.get("run")) not in (None, run):
            error.fields["blocking_run"] = other
        error.fields["run"] = run
        raise


def _with_output_schema(package: Package, schema: dict[str, Any]) -> Package:
    """An existing schema is replaced only by one with the same id."""
    present = package.output.schema
    if (
        present is not None
        and present != schema
        and (_schema_id(present) is None or _schema_id(present) != _schema_id(schema))
    ):
        message = "the package has an output schema with a different `title` than the schema of the request"
        fields = {"pointer": "/output/schema", "expected": _schema_id(present), "actual": _schema_id(schema)}
        raise PackageError("package.invalid", message, hint="give both schemas the same `title`", fields=fields)
    return replace(package, output=replace(package.output, schema=schema))


def _schema_id(schema: dict[str, Any]) -> Any:
    """The id of a schema. Compiled schemas have no `$id`, so the title is used."""
    return schema.get("$id", schema.get("title"))


def refuse_changed_package(file: PackageFile) -> None:
    found = fingerprint(file.agent)
    if found != file.fingerprint:
        message, fields = "the package was changed after it was compiled", {"pinned": file.fingerprint, "found": found}
        raise PackageError("package.fingerprint_mismatch", message, hint="compile the spec again", fields=fields)


def check_resume(world: World, package: PackageFile, state: State) -> None:
    """Raises `package.*`, `host.missing` and `provider.not_found` if the package cannot continue the run, and
    `run.invalid_state` if nothing can."""
    refuse_stand_ins(state.started, is_recorded=world.is_recorded)
    refuse_changed_package(package)
    validate_package(package.agent)
    refuse_missing_ports(world, package.agent)


_STAND_INS: dict[StandIns, str] = {
    "cassette": "it was started with replies from a cassette (--live-tools or --live-model)",
    "case": "it was started with the stubs or faults of a case, or is a part of a recorded conversation",
}


def refuse_stand_ins(started: RunStarted, *, is_recorded: bool) -> None:
    """Raises `run.invalid_state` for a run that was not wholly live: the rest of it would be. A recording that reuses
    interactions of a cassette continues to do so."""
    if started.stand_ins is not UNSET and not (is_recorded and started.stand_ins == "cassette"):
        message = f"the run {started.run} cannot be continued: {_STAND_INS[started.stand_ins]}"
        hint = f"see what is open with `agentrun show {started.run}`, then run the agent again"
        fields = {"run": started.run, "expected": "live", "actual": started.stand_ins}
        raise RequestError("run.invalid_state", message, hint=hint, fields=fields)


def refuse_missing_ports(world: World, package: Package) -> None:
    if error := find_missing_port(world, package):
        raise error


def _admit_request(
    package: Package, request: Request, run: str, session: Session, read: Callable[[str], Iterable[Record]]
) -> tuple[EarlierRuns, AdmittedRequest]:
    """Raises `input.rejected`, `run.invalid_continuation`, `session.unfinished`, `input.admission_failed`."""
    input_id = f"{run}.1"
    try:
        if session.runs:
            refuse_continuation(session, request, tuple(read(session.unfinished or session.runs[-1])))
        fingerprint = request.package.fingerprint if isinstance(request.package, PackageFile) else request.package
        before = earlier_runs(session, package, read, fingerprint)
        before = replace(before, messages=(*before.messages, *request.history))
        admitted = admit(package, request.message, request.params, goes_on=request.goes_on)
        if admitted.message is None:
            _refuse_without_open_message(before)
        else:
            refuse_duplicate_input(package, session, admitted.message, input_id)
    except AgentrunError as error:
        error.fields.setdefault("input_id", input_id)
        raise
    except Exception as error:
        fields = {"input_id": input_id, "reason": type(error).__name__, "run": run}
        message = f"the input could not be checked: {type(error).__name__}"
        raise RequestError("input.admission_failed", message, fields=fields) from error
    return before, admitted


def _refuse_without_open_message(before: EarlierRuns) -> None:
    if not before.messages or isinstance(before.messages[-1], Assistant):
        message = "there is no input, and the conversation has no unanswered message"
        fields = {"expected": "user or tool", "actual": "assistant" if before.messages else "empty"}
        raise RequestError("run.invalid_continuation", message, fields=fields)


def refuse_duplicate_input(package: Package, session: Session, text: str, input_id: str) -> None:
    if package.admission.dedupe and session.has_seen(text):
        message = "the same message was already sent in this session"
        raise _rejected_input_error("duplicate", message, input_id=input_id)


class AdmittedRequest(Struct, frozen=True):
    params: dict[str, Any]
    instructions: str
    message: str | None
    """None: continue the existing conversation."""
    prompts: dict[str, str]


def admit(
    package: Package, message: str | None, params: Mapping[str, Any], *, goes_on: bool = False
) -> AdmittedRequest:
    """Without a message, use the input of the package, or continue if `goes_on`. Raises `input.rejected`."""
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
    """The seed of the retry jitter. A recorded run and its replays have the same seed, so they wait equally long."""
    return text_hash(sorted_json([package.name, admitted.params, admitted.message]))[7:23]


def _render_prompts(package: Package, values: Mapping[str, Any]) -> dict[str, str]:
    prompts = {}
    if package.guards.empty_outcome is not None:
        prompts["nudge"] = render_prompt(package.guards.nudge, values, "guards.nudge")
    if package.context.overflow == "compact":
        prompts["compact"] = render_prompt(package.context.prompt, values, "context.compaction.prompt")
    return prompts


def _check_message(package: Package, message: str | None) -> str:
    if message is None or not message.strip():
        hint = None if message is not None else "pass a message, or set `input` in the spec"
        raise _rejected_input_error("empty", texts.MESSAGE_EMPTY, hint)
    limit = package.admission.max_chars
    if limit is not None and len(message) > limit:
        raise _rejected_input_error("too_long", texts.message_too_long(len(message), limit), limit=limit)
    return message


def _rejected_input_error(reason: str, message: str, hint: str | None = None, **fields: Any) -> RequestError:
    return RequestError("input.rejected", message, hint=hint, fields={"reason": reason, **fields})
