"""Documents as data that can be written to disk, changed in one place or split into several files."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]


def yaml_text(document: Any, quotes: Sequence[str | None] = (None,), **layout: Any) -> str:
    """A document as people might write it, without aliases. `quotes` are taken in turn where none are needed."""

    class Dumper(yaml.CSafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_text(self, text: str) -> yaml.Node:
            simple = re.fullmatch(r"[A-Za-z][A-Za-z0-9_ /-]*[A-Za-z_]", text)  # PyYAML quotes for YAML 1.1 only
            style = quotes[len(text) % len(quotes)] if simple else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", text, style)

    Dumper.add_representer(str, Dumper.represent_text)
    settings = {"sort_keys": False, "allow_unicode": True, "width": 10_000, **layout}
    text: str = yaml.dump(document, Dumper=Dumper, **settings)
    return text


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def document_with(document: Document, at: str, value: Any) -> Document:
    """A copy of a document with one value changed; `at` is a dotted path, with numbers for items."""
    copied: Document = json.loads(json.dumps(document))  # not deepcopy, which keeps shared what is shared
    *way, last = at.split(".")
    inner: Any = copied
    for step in way:
        inner = inner[int(step)] if isinstance(inner, list) else inner[step]
    inner[int(last) if isinstance(inner, list) else last] = value
    return copied


class _Layout:
    """Moves parts of a document into files beside it."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def put(self, name: str, text: str) -> Document:
        self.files[name] = text
        return {"file": name}

    def text(self, name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self.text(f"{name}-{index}", item) for index, item in enumerate(value)]
        return self.put(f"{name}.md", value) if isinstance(value, str) else value

    def schema(self, name: str, value: Document) -> Document:
        return value if "file" in value else self.put(f"{name}.json", json.dumps(value))

    def part(self, key: str, value: Document) -> list[Document]:
        """A file with the first half of what is there, and the other half."""
        names = list(value)[: (len(value) + 1) // 2]
        inside = {"agentrun": "1", key: {name: value[name] for name in names}}
        outside = {name: value[name] for name in value if name not in names}
        return [self.put(f"{key}.part.yaml", yaml_text(inside)), outside]


def split_into_files(document: Document, *, parts: bool = True) -> tuple[Document, dict[str, str]]:
    """The same agent with all that can be in files in files, and these; without `parts`, texts and schemas only."""
    spec, layout = json.loads(json.dumps(document)), _Layout()
    for key in [key for key in ("instructions", "input") if key in spec]:
        spec[key] = layout.text(key, spec[key])
    if "prompt" in spec.get("context", {}).get("compaction", {}):
        spec["context"]["compaction"]["prompt"] = layout.text("prompt", spec["context"]["compaction"]["prompt"])
    for name, schema in spec.get("params", {}).items():
        spec["params"][name] = layout.schema(f"param-{name}", schema)
    if "schema" in spec.get("output", {}):
        spec["output"]["schema"] = layout.schema("output", spec["output"]["schema"])
    for name, tool in spec.get("tools", {}).items():
        if "args" in tool:
            tool["args"] = layout.schema(f"{name}-args", tool["args"])
        for action, schema in tool.get("actions", {}).items():
            tool["actions"][action] = layout.schema(f"{name}-{action}", schema)
    for key in [key for key in ("tools", "policy", "budgets") if parts and key in spec]:
        spec[key] = layout.part(key, spec[key])
    return spec, layout.files
