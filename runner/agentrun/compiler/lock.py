"""The lock of a spec: what lives elsewhere and must not change under a package.

`<spec>.lock` stands beside the spec. It pins

- the price and the context window of each route, taken from the data that genai-prices carries (nothing is fetched). A
  price or window written in the spec wins over the lock;
- the tools of each MCP server: what the model reads about them is what stands here, for a person to read as well.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentrun.canon import pretty
from agentrun.compiler.pins import pin_problems, plainly, written_pins
from agentrun.core.package import Price
from agentrun.core.package_tools import Pinned
from agentrun.spec.document import parse
from agentrun.spec.files import read_source
from agentrun.spec.problems import DocumentError, Place, Problem, Source, quoted
from agentrun.spec.tree import plain
from agentrun.spec.v1.agent import Agent, FallbackModel


class Row(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of one route."""

    price: Price | None
    context_window: int | None


class Lock(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The pins of one spec."""

    agentrun_lock: str = "1"
    origin: str
    """Where the rows come from; not part of any package."""
    routes: dict[str, Row]
    """The pinned row of each route, by provider/model. Null: the data knows nothing of it."""
    servers: dict[str, dict[str, Pinned]] = {}
    """The pinned tools of each MCP server, by the name that the spec gives to it and their own."""


def lock_path(spec: Path) -> Path:
    return spec.with_suffix(".lock")


def routes_of(agent: Agent) -> list[str]:
    """The routes of an agent, the main one first."""
    fallbacks = [one if isinstance(one, str) else route_name(one) for one in agent.model.fallback]
    return list(dict.fromkeys([route_name(agent.model), *fallbacks]))


def route_name(model: FallbackModel) -> str:
    return f"{model.provider}/{model.name}"


def read_lock(spec: Path) -> Lock | None:
    """The lock beside a spec, if there is one. A damaged one is a problem, never ignored."""
    path = lock_path(spec)
    return lock_in(read_source(path)) if path.exists() else None


def lock_in(source: Source) -> Lock:
    """The lock that a text is. Raises `DocumentError`."""
    root = parse(source)  # JSON is YAML: a key that stands twice and a number that is not exact are refused here too
    try:
        lock = msgspec.convert(plain(root), Lock)
    except msgspec.ValidationError as error:
        raise DocumentError([_damaged(source, f"not a lock: {error}")]) from None
    if lock.agentrun_lock != "1":
        raise DocumentError([_damaged(source, "the lock is of another version")])
    if problems := list(pin_problems(root)):
        raise DocumentError(problems)
    if wrong := [route for route, row in lock.routes.items() if _is_impossible(row)]:
        raise DocumentError([_damaged(source, f"{quoted(route)} has an impossible number") for route in wrong])
    return replace(lock, servers=written_pins(root))


def _is_impossible(row: Row) -> bool:
    amounts = () if row.price is None else (row.price.input, row.price.output, row.price.cached_input)
    return any(amount < 0 for amount in amounts) or (row.context_window is not None and row.context_window < 1)


def _damaged(source: Source, message: str) -> Problem:
    return Problem(Place(source, 1, 1), "spec.lock", message, "write it anew with `agentrun lock SPEC`")


def make_lock(*agents: Agent, servers: dict[str, dict[str, Pinned]] | None = None) -> Lock:
    """The lock as today's data gives it, for an agent and what its profiles make of it."""
    import genai_prices  # late: 0.45 s of start-up that only `lock` needs

    origin = f"genai-prices {genai_prices.__version__}"
    routes = {route: _row(route) for agent in agents for route in routes_of(agent)}
    return Lock(origin=origin, routes=routes, servers=servers or {})


def lock_text(lock: Lock) -> str:
    """The lock as a file. Nothing in it is invisible: a person has to read what the model will."""
    parts = msgspec.to_builtins(lock)
    return plainly(pretty(parts if lock.servers else {key: parts[key] for key in parts if key != "servers"}))


def _row(route: str) -> Row:
    from genai_prices import data_snapshot  # late: as above

    provider, _, name = route.partition("/")
    family = {"openai-responses": "openai", "gemini": "google"}.get(provider, provider)
    try:
        _, model = data_snapshot.get_snapshot().find_provider_model(name, None, family, None)
    except LookupError:
        return Row(price=None, context_window=None)
    return Row(price=_price(model.prices), context_window=model.context_window)


def _price(prices: Any) -> Price | None:
    """The row in micro-dollars. Where prices have tiers or change, the dearest one: spending is never understated."""
    rows = [row.prices for row in prices] if isinstance(prices, list) else [prices]

    def dearest(*fields: str) -> int | None:
        given = [[_amounts(getattr(row, field, None)) for field in fields] for row in rows]
        amounts = [amount for row in given for amount in next(filter(None, row), [])]
        return int((max(amounts) * 1_000_000).to_integral_value(ROUND_CEILING)) if amounts else None

    entering, leaving = dearest("input_mtok"), dearest("output_mtok")
    cached = dearest("cache_read_mtok", "input_mtok")  # a row without a price for cached tokens takes the full one
    if entering is None or leaving is None or cached is None:
        return None
    return Price(input=entering, output=leaving, cached_input=cached)


def _amounts(price: Any) -> list[Decimal]:
    if price is None:
        return []
    if isinstance(price, (int, float, Decimal)):
        return [Decimal(str(price))]
    return [Decimal(str(price.base)), *(Decimal(str(tier.price)) for tier in price.tiers)]
