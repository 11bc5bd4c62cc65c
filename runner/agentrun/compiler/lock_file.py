"""The lock file `<spec>.lock` next to a spec. It pins external data, so that a package changes only on purpose:

- the price and the context window of each route, from the data in genai-prices (nothing is fetched). A price or window
  in the spec overrides the lock file;
- the tools of each MCP server. The model reads exactly the descriptions in the lock file, so people can review them.

JSON Schemas from MCP servers may have any dialect. They are converted to schemas that agentrun can use:

Rule 1  `$schema`, unknown keywords and patterns that are not linear are removed. Only the server checks such values.
Rule 2  Texts for the model are escaped, so that nothing in them is hidden from a person who reads the lock file.
Rule 3  The result passes all checks of `json_schemas.py`, with references expanded. Otherwise the schema is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from agentrun.canonical_json import map_json, pretty_json, sorted_json
from agentrun.compiler.json_schemas import SCHEMA_KEYWORDS, check_schema, map_subschemas, resolve_references
from agentrun.compiler.patterns import is_usable_in_schemas
from agentrun.compiler.size_limits import pattern_weight_problems, patterns_in_document
from agentrun.compiler.spec_reader import Spec
from agentrun.core.package import Price, matches_pattern
from agentrun.core.package_tools import PinnedTool
from agentrun.spec.problems import DocumentError, Problem, Source, did_you_mean, escape_invisible, quote_text
from agentrun.spec.schema_check import child_values
from agentrun.spec.source_files import read_source
from agentrun.spec.tree import DocumentPath, Node, plain_data
from agentrun.spec.v1.agent import Agent
from agentrun.spec.v1.tools import McpToolSpec
from agentrun.spec.yaml_parser import MAX_EXACT_INTEGER, parse_yaml_document

MAX_PINNED_TOOLS = 256
MAX_TOOL_DESCRIPTION_BYTES = 16 * 1024
MAX_TOOL_SCHEMA_BYTES = 64 * 1024
MAX_TOOL_SCHEMA_DEPTH = 24
MCP_TOOL_NAME = re.compile(r"(?=.{1,128}\Z)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
"""No characters with a meaning in paths, because the name of a tool becomes part of other names."""
MCP_TOOL_NAME_RULE = "use up to 128 letters, digits, `_` and `-`, with single dots between them"
LOCK_AGAIN_HINT = "run `agentrun lock SPEC`"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAYBE_INVISIBLE = re.compile(r"[^\n\x20-\x7e]")


class RoutePin(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    price: Price | None
    context_window: int | None


class Lock(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    agentrun_lock: str = "1"
    origin: str
    """The source of the data. It is not part of a package."""
    routes: dict[str, RoutePin]
    """The pinned data of each route, by provider/model. Null: the source has none."""
    servers: dict[str, dict[str, PinnedTool]] = {}
    """The pinned tools of each MCP server, by the name of the server in the spec and of the tool."""


def lock_path(spec: Path) -> Path:
    return spec.with_suffix(".lock")


def agent_routes(agent: Agent) -> list[str]:
    """Return the routes of an agent, the main one first."""
    return list(dict.fromkeys(model.route for model in agent.model.routes))


def read_lock(spec: Path) -> Lock | None:
    """Read the lock file of a spec, if there is one. Raises `DocumentError` if it is damaged."""
    path = lock_path(spec)
    return parse_lock(read_source(path)) if path.exists() else None


def parse_lock(source: Source) -> Lock:
    """Parse a lock file. Raises `DocumentError`."""
    root = parse_yaml_document(source)  # JSON is YAML: so duplicate keys and inexact numbers are refused here too
    try:
        lock = msgspec.convert(plain_data(root), Lock)
    except msgspec.ValidationError as error:
        raise DocumentError([_lock_problem(root, f"not a lock file: {error}")]) from None
    if lock.agentrun_lock != "1":
        raise DocumentError([_lock_problem(root, "the lock file has another version")])
    if problems := list(_pin_problems(root, lock)):
        raise DocumentError(problems)
    if wrong := [route for route, row in lock.routes.items() if _is_impossible(row)]:
        raise DocumentError([_lock_problem(root, f"{quote_text(route)} has an invalid number") for route in wrong])
    return replace(lock, servers=_with_expanded_references(root, lock))


def _is_impossible(row: RoutePin) -> bool:
    amounts = () if row.price is None else (row.price.input, row.price.output, row.price.cached_input)
    return any(amount < 0 for amount in amounts) or (row.context_window is not None and row.context_window < 1)


def make_lock(*agents: Agent, servers: dict[str, dict[str, PinnedTool]] | None = None) -> Lock:
    """Make a lock from current data, for an agent and its profiles."""
    import genai_prices  # late: takes 0.45 s, and only `lock` needs it

    origin = f"genai-prices {genai_prices.__version__}"
    routes = {route: _look_up_route(route) for agent in agents for route in agent_routes(agent)}
    return Lock(origin=origin, routes=routes, servers=servers or {})


def lock_text(lock: Lock) -> str:
    """Return the content of the lock file, with invisible characters escaped so that people can review it."""
    parts = msgspec.to_builtins(lock)
    return escape_invisible_json(
        pretty_json(parts if lock.servers else {key: parts[key] for key in parts if key != "servers"})
    )


def _look_up_route(route: str) -> RoutePin:
    from genai_prices import data_snapshot  # late: as above

    provider, _, name = route.partition("/")
    family = {"openai-responses": "openai", "gemini": "google"}.get(provider, provider)
    try:
        _, model = data_snapshot.get_snapshot().find_provider_model(name, None, family, None)
    except LookupError:
        return RoutePin(price=None, context_window=None)
    return RoutePin(price=_highest_price(model.prices), context_window=model.context_window)


def _highest_price(prices: Any) -> Price | None:
    """Return the price in micro-dollars. Of several prices the highest is used, so that costs are never understated."""
    rows = [row.prices for row in prices] if isinstance(prices, list) else [prices]

    def highest(*fields: str) -> int | None:
        found = [[_amounts(getattr(row, field, None)) for field in fields] for row in rows]
        amounts = [amount for row in found for amount in next(filter(None, row), [])]
        return int((max(amounts) * 1_000_000).to_integral_value(ROUND_CEILING)) if amounts else None

    full, output = highest("input_mtok"), highest("output_mtok")
    cached = highest("cache_read_mtok", "input_mtok")  # without a price for cached tokens, the full price
    if full is None or output is None or cached is None:
        return None
    return Price(input=full, output=output, cached_input=cached)


def _amounts(price: Any) -> list[Decimal]:
    if price is None:
        return []
    if isinstance(price, (int, float, Decimal)):
        return [Decimal(str(price))]
    return [Decimal(str(price.base)), *(Decimal(str(tier.price)) for tier in price.tiers)]


def select_pinned_tools(tool: McpToolSpec, pinned: Mapping[str, PinnedTool]) -> dict[str, PinnedTool]:
    return {
        name: pinned[name] for name in sorted(pinned) if any(matches_pattern(pattern, name) for pattern in tool.tools)
    }


def unpinned_problems(spec: Spec, servers: Mapping[str, Mapping[str, PinnedTool]]) -> Iterator[Problem]:
    for name, tool in spec.agent.tools.items():
        if not isinstance(tool, McpToolSpec) or (tool.command is UNSET) == (tool.url is UNSET):
            continue  # not a server, or without an address
        path = spec.at("tools", name)
        pinned = servers.get(name)
        if pinned is None:
            message = f"the tools of {quote_text(name)} are not in the lock file"
            yield path.key_problem("spec.unpinned", message, LOCK_AGAIN_HINT)
            continue
        missing = [(index, each) for index, each in enumerate(tool.tools) if "*" not in each and each not in pinned]
        for index, each in missing:
            message = f"the lock file has no tool {quote_text(each)} of {quote_text(name)}"
            hint = did_you_mean(each, pinned) or LOCK_AGAIN_HINT
            yield path.at("tools", index).problem("spec.unpinned", message, hint)
        if not missing and not select_pinned_tools(tool, pinned):
            message = f"the lock file has no tool that matches `tools:` of {quote_text(name)}"
            yield path.key_problem("spec.unpinned", message, LOCK_AGAIN_HINT)


def escape_invisible_json(text: str) -> str:
    return _MAYBE_INVISIBLE.sub(
        lambda found: found[0] if escape_invisible(found[0]) == found[0] else json.dumps(found[0])[1:-1], text
    )


def _with_expanded_references(root: Node, lock: Lock) -> dict[str, dict[str, PinnedTool]]:
    servers = DocumentPath(root, ("servers",))
    return {
        server: {
            name: replace(tool, args=resolve_references(servers.at(server, name, "args").existing_node))
            for name, tool in tools.items()
        }
        for server, tools in lock.servers.items()
    }


def _pin_problems(root: Node, lock: Lock) -> Iterator[Problem]:
    """Yield the problems of the servers in a lock file. Its structure was checked before."""
    if heavy := list(pattern_weight_problems(patterns_in_document(root))):
        yield from heavy
        return
    for server, tools in lock.servers.items():
        if len(tools) > MAX_PINNED_TOOLS:
            yield _lock_problem(root, f"{quote_text(server)} has more than {MAX_PINNED_TOOLS} tools")
        for name, tool in tools.items():
            path = DocumentPath(root, ("servers", server, name))
            node = path.existing_node
            whose = f"{quote_text(name)} of {quote_text(server)}"
            if not MCP_TOOL_NAME.fullmatch(name):
                yield _lock_problem(node, f"{whose} is not a valid tool name; {MCP_TOOL_NAME_RULE}")
            if len(tool.description.encode()) > MAX_TOOL_DESCRIPTION_BYTES:
                limit = f"{MAX_TOOL_DESCRIPTION_BYTES:,} bytes"
                yield _lock_problem(node, f"the description of {whose} is longer than {limit}")
            if not _DIGEST.fullmatch(tool.digest):
                yield _lock_problem(node, f"the digest of {whose} is invalid")
            yield from _schema_problems(path.at("args").existing_node, whose)


def _schema_problems(args: Node, whose: str) -> Iterator[Problem]:
    schema = plain_data(args)
    if why := schema_size_error(schema):
        yield _lock_problem(args, f"the schema of {whose} {why}")
        return
    found = check_schema(args)
    yield from found
    if not found and schema.get("type") != "object":
        yield _lock_problem(args, f"the schema of {whose} is not the schema of an object")


def schema_size_error(schema: Any) -> str | None:
    if is_too_deep(schema):
        return f"is nested deeper than {MAX_TOOL_SCHEMA_DEPTH} levels"
    if len(sorted_json(schema)) > MAX_TOOL_SCHEMA_BYTES:
        return f"is larger than {MAX_TOOL_SCHEMA_BYTES:,} bytes"
    return None


def is_too_deep(schema: Any) -> bool:
    """Return whether a schema is too deep. No recursion, because a server may send any depth."""
    level = [schema]
    for _ in range(MAX_TOOL_SCHEMA_DEPTH + 1):
        level = [inner for each in level for inner in child_values(each)]
        if not level:
            return False
    return True


def _lock_problem(node: Node, message: str) -> Problem:
    return Problem(node.place, "spec.lock", message, f"to write it again, {LOCK_AGAIN_HINT}")


class UnusableSchema(Exception):
    """Why a schema cannot be used."""


def escape_invisible_lines(text: str) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(escape_invisible, line.split("\t"))) for line in lines)


def with_exact_numbers(value: Any) -> Any:
    """Convert large integers to floats, so that every JSON parser reads the same number."""
    return map_json(value, number=lambda each: float(each) if abs(each) > MAX_EXACT_INTEGER else each)


def adopt_schema(schema: Any) -> dict[str, Any]:
    """Return a schema that can replace the schema of a server. Raises `UnusableSchema`."""
    if not isinstance(schema, dict):
        raise UnusableSchema("is not a JSON Schema")
    try:
        why = schema_size_error(schema)
        supported = {} if why else _remove_unsupported(with_exact_numbers({"type": "object", **schema}))
        text = escape_invisible_json(pretty_json(supported))
    except (TypeError, ValueError, OverflowError, RecursionError):  # half a surrogate pair; an infinite number
        raise UnusableSchema("has values that JSON does not support") from None
    if why is not None:
        raise UnusableSchema(why)
    try:
        node = parse_yaml_document(Source(Path("/schema"), "schema", text))
    except DocumentError as error:
        raise UnusableSchema(f"cannot be stored in a lock file: {error.problems[0].message}") from None
    if found := check_schema(node):
        raise UnusableSchema(f"cannot be used: {found[0].message}")
    written = resolve_references(node)
    if written.get("type") != "object":
        raise UnusableSchema("is not the schema of an object")
    if schema_size_error(written):
        raise UnusableSchema(f"is larger than {MAX_TOOL_SCHEMA_BYTES:,} bytes with its references expanded")
    return written


def _remove_unsupported(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    known = {
        key: inner for key, inner in schema.items() if key in SCHEMA_KEYWORDS and key not in ("$schema", "$comment")
    }
    if isinstance(known.get("items"), list):  # the form in older dialects
        known["prefixItems"] = known.pop("items")
    if isinstance(known.get("pattern"), str) and not is_usable_in_schemas(known["pattern"]):
        del known["pattern"]
    patterns = known.get("patternProperties")
    if isinstance(patterns, dict) and not all(map(is_usable_in_schemas, patterns)):
        known.pop("patternProperties")
        known.pop("additionalProperties", None)  # it would refuse the keys that the patterns allow
    for key in ("title", "description"):
        if isinstance(known.get(key), str):
            known[key] = escape_invisible_lines(known[key])
    return map_subschemas(known, _remove_unsupported)
