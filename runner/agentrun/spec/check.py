"""Documents against their JSON Schemas: every error as a problem at its place.

Rule 1  The shipped `*.schema.json` files decide, the same ones editors use.
Rule 2  Nothing is fetched; the schemas hold everything they refer to.
Rule 3  The validator says where a document breaks its schema; what is wrong there is read from the schema and the
        document. Its own error objects each copy the value they are about: a hundred wrong names in one mapping of
        15,000 keys are 1.8 GB.
Rule 4  A wide document is looked through in pieces, until there are problems enough for one reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema_rs
from msgspec import Struct

from agentrun.spec import wording
from agentrun.spec.document import MAX_PROBLEMS
from agentrun.spec.problems import Problem, did_you_mean, quoted
from agentrun.spec.tree import Mapping, Node, Sequence, at, place_of, plain

Steps = tuple[str | int, ...]

WIDTH = 100
"""How many entries of a collection are looked at together in a wide document, and …"""
PIECES = 10
"""… in how many pieces. What is wrong only beyond them is told without its place."""
WIDE = 2000
"""Values in a document that is no longer looked at as a whole."""


class Fault(Struct, frozen=True):
    """A problem, and the path of what would have to be taken out to be rid of it."""

    path: Steps
    problem: Problem


def schema_file(name: str) -> Path:
    """Where a schema is: beside the code in an installation, at the top of the tree in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "schemas" / f"{name}.schema.json"
    return installed if installed.exists() else package.parent.parent / "schemas" / f"{name}.schema.json"


@lru_cache
def _schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(schema_file(name).read_bytes())
    return loaded


@lru_cache
def _validator(name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(_schema(name), offline=True)


def check(root: Node, name: str) -> list[Problem]:
    """Everything in the document that its schema refuses, as far as one reading can take it in."""
    return [fault.problem for fault in faults(root, name)]


def faults(root: Node, name: str) -> list[Fault]:
    """The same with the paths of what is wrong."""
    data = plain(root)
    if _validator(name).is_valid(data):
        return []
    found: dict[tuple[Steps, str], Fault] = {}
    for fault in _all_faults(root, data, name):
        problem = fault.problem
        what = problem.code if problem.code == "spec.wrong_type" else problem.message  # a type is wrong once
        found.setdefault((fault.path, what), fault)
        if len(found) == MAX_PROBLEMS:
            break
    if not found:
        message = "the document does not fit its schema, and is too large to say where"
        return [Fault((), Problem(root.place, "spec.too_large", message, "split it into files"))]
    return list(found.values())


def _all_faults(root: Node, data: Any, name: str) -> Iterator[Fault]:
    for first, piece in _pieces(data):
        for error in _validator(name).evaluate(piece).errors():
            steps = [_step(part) for part in error["schemaLocation"].split("/")[1:]]
            path = _path(root, error["instanceLocation"], first)
            yield from _Reader(root, _schema(name), path).faults(steps)


def _pieces(data: Any) -> Iterator[tuple[int, Any]]:
    """The document, or where it is wide its pieces with the number of their first entries."""
    if _size(data, WIDE) <= WIDE:
        yield 0, data
        return
    for first in range(0, WIDTH * PIECES, WIDTH):
        if first < max(_longest(data), 1):
            yield first, _cut(data, first, first + WIDTH)
    yield 0, _cut(data, 0, WIDTH * PIECES + 1)  # all entries were fine: then there are too many of them


def _size(data: Any, most: int) -> int:
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    count = 1
    for value in inner:
        count += _size(value, most - count)
        if count > most:
            break
    return count


def _longest(data: Any) -> int:
    inner = list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else []
    return max([len(inner), *map(_longest, inner)]) if inner else 0


def _cut(data: Any, first: int, last: int) -> Any:
    """The same with only some of the entries of every collection that has many."""
    if not isinstance(data, (dict, list)):
        return data
    start, stop = (first, last) if len(data) > WIDTH else (0, WIDTH)
    if isinstance(data, list):
        return [_cut(value, first, last) for value in data[start:stop]]
    return {key: _cut(value, first, last) for key, value in islice(data.items(), start, stop)}


def _step(text: str) -> str:
    return text.replace("~1", "/").replace("~0", "~")


def _path(root: Node, pointer: str, first: int) -> Steps:
    """A JSON pointer into a piece as a path in the whole document."""
    path: list[str | int] = []
    node: Node | None = root
    for text in pointer.split("/")[1:]:
        step: str | int = _step(text)
        if isinstance(node, Sequence):
            step = int(step) + (first if len(node.items) > WIDTH else 0)
        path.append(step)
        node = at(node, [step]) if node is not None else None
    return tuple(path)


def _called(path: Steps) -> str:
    """What is at a path, in words: by its key, or in a list as people count."""
    if not path:
        return "the document"
    name, last = next((quoted(step) for step in reversed(path) if isinstance(step, str)), "the list"), path[-1]
    return f"item {last + 1} of {name}" if isinstance(last, int) else name


class _Reader:
    """Says what a part of a schema has against the value at a path."""

    def __init__(self, root: Node, schema: dict[str, Any], path: Steps) -> None:
        self.root = root
        self.schema = schema
        self.path = path
        node = at(root, path)
        self.value = plain(node) if node is not None and not isinstance(node, Mapping) else {}
        self.keys = list(node.entries) if isinstance(node, Mapping) else []
        names = [step for step in path if isinstance(step, str)]
        self.key = _called(path)
        self.is_secret = bool(names) and wording.is_secret(names[-1])

    def faults(self, steps: list[str]) -> Iterator[Fault]:
        """`steps`: the way to the keyword that the value breaks."""
        if "propertyNames" in steps:
            names = self._part(steps[: steps.index("propertyNames") + 1])
            yield from self._wrong_names(names)
            return
        part, keyword = self._part(steps[:-1]), steps[-1]
        if keyword in ("additionalProperties", "required"):  # the validator may report one under the other
            unknown = list(islice(self._unknown_keys(part), MAX_PROBLEMS))
            yield from unknown
            yield from self._missing_keys(part, {fault.problem.hint for fault in unknown})
        else:
            around = self._part(steps[: steps.index("allOf")]) if "allOf" in steps else part
            yield self._fault(*self._wrong(keyword, part, around.get("type")))

    def _part(self, steps: list[str]) -> dict[str, Any]:
        part: Any = self.schema
        for step in steps:
            part = part[int(step)] if isinstance(part, list) else part[step]
        return part if isinstance(part, dict) else {}

    def _fault(self, code: str, message: str, hint: str | None) -> Fault:
        return Fault(self.path, Problem(place_of(self.root, self.path), code, message, hint))

    def _wrong(self, keyword: str, part: dict[str, Any], types: Any) -> tuple[str, str, str | None]:
        """`types`: what the value may be in all, where `part` is only about one of them."""
        told = wording.Told(self.key, self.value, self.is_secret)
        limit: Any = part.get(keyword)
        match keyword:
            case "type":
                wanted = limit if isinstance(limit, list) else [limit]
                return "spec.wrong_type", *told.wrong_type(wanted, part.get("pattern", ""))
            case "enum" | "const":
                others = [kind for kind in types if kind != "string"] if isinstance(types, list) else []
                return "spec.wrong_value", *told.wrong_value(limit if keyword == "enum" else [limit], others)
            case "pattern":
                return "spec.wrong_text", *told.wrong_text(limit)
            case _:
                return "spec.out_of_range", told.wrong_size(keyword, limit), None

    def _unknown_keys(self, part: dict[str, Any]) -> Iterator[Fault]:
        known = part.get("properties", {})
        if part.get("additionalProperties") is not False:
            return
        where = f"in {quoted('.'.join(map(str, self.path)))}" if self.path else "at the top of the document"
        for key in self.keys:
            if key not in known:
                path = (*self.path, key)
                hint = did_you_mean(key, known) or (f"known keys: {', '.join(sorted(known))}" if known else None)
                message = f"key {quoted(key)} is not known {where}"
                yield Fault(path, Problem(place_of(self.root, path, key=True), "spec.unknown_key", message, hint))

    def _missing_keys(self, part: dict[str, Any], hints: set[str | None]) -> Iterator[Fault]:
        """Not those that are there under a misspelt name, as the hints about unknown keys say."""
        for key in part.get("required", ()):
            if key not in self.keys and f"did you mean {quoted(key)}?" not in hints:
                text = part.get("properties", {}).get(key, {}).get("description")
                place = place_of(self.root, self.path, key=True)
                yield Fault(
                    self.path, Problem(place, "spec.missing_key", f"{self.key} lacks the key {quoted(key)}", text)
                )

    def _wrong_names(self, names: dict[str, Any]) -> Iterator[Fault]:
        validator = jsonschema_rs.Draft202012Validator(names, offline=True)
        for key in self.keys:
            if not validator.is_valid(key):
                path = (*self.path, key)
                words = wording.Told("the key", key).wrong_text(names.get("pattern", ""))
                yield Fault(path, Problem(place_of(self.root, path, key=True), "spec.name", *words))
