"""Write plain data as YAML in block style.

Rule 1  libyaml's emitter writes it. Anchors with names of our own are written by PyYAML's emitter, which is slower.
Rule 2  The text depends on the data only. libyaml is always there, because cassettes are read with it.
"""

from __future__ import annotations

from typing import Any

import yaml

from agentrun.cassette.yaml_loader import LinedMapping


class AnchoredText(str):
    """A text with an anchor, or the alias of one."""

    __slots__ = ("anchor", "is_alias")
    anchor: str
    is_alias: bool


class OneLine(list[int]):
    """A list that is written on one line."""


def dump_yaml(data: Any) -> str:
    """A part of a document."""
    try:
        return _dump(data, _Dumper)
    except _AnchorFound:
        return dump_with_anchors(data)


def dump_with_anchors(data: Any) -> str:
    return _dump(data, _AnchorDumper)


def _dump(data: Any, dumper: type[yaml.SafeDumper | yaml.CSafeDumper]) -> str:
    """An emitter ends a document whose last text ends with an empty line, as streams do, with `...`."""
    text = str(
        yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**30)
    )
    return text.removesuffix("...\n") if text.endswith("\n...\n") else text


class _AnchorFound(Exception):
    """libyaml's emitter would choose the name of the anchor."""


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # only `AnchoredText` has aliases
        return True


class _AnchorDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # only `AnchoredText` has aliases
        return True

    def anchor_node(self, node: Any) -> None:
        super().anchor_node(node)
        if isinstance(node.value, AnchoredText):
            self.anchors[node] = node.value.anchor

    def serialize_node(self, node: Any, parent: Any, index: Any) -> None:
        if isinstance(node.value, AnchoredText) and node.value.is_alias:
            self.emit(yaml.AliasEvent(node.value.anchor))
        else:
            super().serialize_node(node, parent, index)


def _represent_text(dumper: yaml.SafeDumper | yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    lines = text.split("\n")
    style = "|" if len(lines) > 1 else None
    if not all(line.isprintable() for line in lines):
        style = '"'  # the one style that keeps every character as it is
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _refuse_anchor(dumper: yaml.CSafeDumper, text: AnchoredText) -> yaml.ScalarNode:  # noqa: ARG001  # PyYAML's signature
    raise _AnchorFound


for _dumper in (_Dumper, _AnchorDumper):
    _dumper.add_representer(str, _represent_text)
    _dumper.add_representer(LinedMapping, yaml.SafeDumper.represent_dict)
    _dumper.add_representer(
        OneLine, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
    )
_Dumper.add_representer(AnchoredText, _refuse_anchor)
_AnchorDumper.add_representer(AnchoredText, _represent_text)
