"""What is known of a run, for explaining why its tape does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrun.cassette.explain import Here, Template
from agentrun.compiler.fingerprint import PackageFile
from agentrun.compiler.prompts import complete_params
from agentrun.compiler.resolve import Spec
from agentrun.spec.tree import Node, Scalar, Sequence, at


def here_of(
    spec: Spec, file: PackageFile, *, message: str | None, params: Mapping[str, Any], accept: str, whole: bool
) -> Here:
    """`message`: None for the agent's own. `accept`: the command that runs this case. `whole`: whether only a whole new
    recording helps."""
    return Here(
        sections=file.sections,
        params=complete_params(file.agent, params),
        instructions=tuple(
            Template(*_place(node), source)
            for node, source in zip(_parts(at(spec.root, ["instructions"])), file.agent.instructions, strict=True)
        ),
        input=_input(spec, file, message),
        accept=accept,
        whole=whole,
    )


def _parts(node: Node | None) -> list[Node]:
    assert node is not None
    return list(node.items) if isinstance(node, Sequence) else [node]


def _input(spec: Spec, file: PackageFile, message: str | None) -> Template | None:
    node = at(spec.root, ["input"])
    if message is not None or node is None or file.agent.input is None:
        return None
    return Template(*_place(node), file.agent.input)


def _place(node: Node) -> tuple[str, int]:
    """The file, and the line of it where the text begins."""
    place = node.place_at(0) if isinstance(node, Scalar) else node.place
    return place.source.shown, place.line
