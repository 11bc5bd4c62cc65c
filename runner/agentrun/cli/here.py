"""What is known of a run, for explaining why its tape does not fit."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from agentrun.cassette.explain import Here, Template
from agentrun.cli.plan import Plan
from agentrun.compiler.fingerprint import PackageFile
from agentrun.compiler.prompts import complete_params
from agentrun.compiler.resolve import Spec
from agentrun.spec.files import shown_path
from agentrun.spec.tree import Node, Scalar, Sequence, at


def here_of(
    spec: Spec,
    file: PackageFile,
    plan: Plan,
    settings: tuple[str, ...] = (),
    approve: str | None = None,
    attached: tuple[Path, ...] = (),
) -> Here:
    return Here(
        sections=file.sections,
        params=complete_params(file.agent, plan.params),
        instructions=tuple(
            Template(*_place(node), source)
            for node, source in zip(_parts(at(spec.root, ["instructions"])), file.agent.instructions, strict=True)
        ),
        input=_input(spec, file, plan),
        accept=_command(spec, plan, settings, approve, attached),
        whole=plan.mode in ("live-tools", "live-model") or _answers_itself(plan, approve),
    )


def _answers_itself(plan: Plan, approve: str | None) -> bool:
    """Whether approvals are answered in advance: a tape of which a part is kept keeps its own answers."""
    return approve not in (None, "ask") or (plan.case is not None and bool(plan.case.approvals))


def _parts(node: Node | None) -> list[Node]:
    assert node is not None
    return list(node.items) if isinstance(node, Sequence) else [node]


def _input(spec: Spec, file: PackageFile, plan: Plan) -> Template | None:
    node = at(spec.root, ["input"])
    if plan.message is not None or node is None or file.agent.input is None:
        return None
    return Template(*_place(node), file.agent.input)


def _place(node: Node) -> tuple[str, int]:
    """The file, and the line of it where the text begins."""
    place = node.place_at(0) if isinstance(node, Scalar) else node.place
    return place.source.shown, place.line


def _command(spec: Spec, plan: Plan, settings: tuple[str, ...], approve: str | None, attached: tuple[Path, ...]) -> str:
    words = ["agentrun", shown_path(spec.path, spec.project.root)]
    if plan.case is not None:
        words += ["--case", plan.case.name]
    for setting in settings:
        words += ["--set", setting]
    for path in attached:
        words += ["--attach", str(path)]
    if approve is not None:
        words += ["--approve", approve]
    return " ".join(map(quote, words))
