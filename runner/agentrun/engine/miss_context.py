"""Build the context of a run that explains why its cassette does not match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrun.cassette.miss_context import MissContext, Template
from agentrun.compiler.package_file import PackageFile
from agentrun.compiler.prompts import complete_params
from agentrun.compiler.spec_reader import Spec
from agentrun.spec.tree import Node, ScalarNode, SequenceNode, node_at


def make_miss_context(
    spec: Spec, file: PackageFile, *, message: str | None, params: Mapping[str, Any], accept: str, whole: bool
) -> MissContext:
    """`message`: None for the input of the spec. `accept`: the command that records this case. `whole`: the whole
    cassette must be recorded again."""
    return MissContext(
        sections=file.sections,
        params=complete_params(file.agent, params),
        instructions=tuple(
            Template(*_file_and_line(node), source)
            for node, source in zip(
                _template_nodes(node_at(spec.root, ["instructions"])), file.agent.instructions, strict=True
            )
        ),
        input=_input_template(spec, file, message),
        record_command=accept,
        needs_full_recording=whole,
    )


def _template_nodes(node: Node | None) -> list[Node]:
    assert node is not None
    return list(node.items) if isinstance(node, SequenceNode) else [node]


def _input_template(spec: Spec, file: PackageFile, message: str | None) -> Template | None:
    node = node_at(spec.root, ["input"])
    if message is not None or node is None or file.agent.input is None:
        return None
    return Template(*_file_and_line(node), file.agent.input)


def _file_and_line(node: Node) -> tuple[str, int]:
    """The file and line of a text."""
    place = node.place_at(0) if isinstance(node, ScalarNode) else node.place
    return place.source.display_name, place.line
