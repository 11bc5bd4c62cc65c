"""The usage of recorded model requests, and its cost at the pinned prices."""

from __future__ import annotations

from collections.abc import Iterable
from operator import add

from msgspec import Struct
from msgspec.structs import astuple

from agentrun.cassette.interactions import Interaction
from agentrun.cassette.parsed_interaction import parse_reply, requested_model
from agentrun.cassette.parsed_request import parse_request
from agentrun.core.budget import charged_cost, charged_tokens
from agentrun.core.messages import Reply
from agentrun.core.package import Package
from agentrun.engine.world import iterate_routes
from agentrun.report.formatting import format_count, format_dollars
from agentrun.spec.safe_text import plural


class Spending(Struct, frozen=True):
    requests: int = 0
    tokens: int = 0
    cost: int = 0
    """Micro-dollars, for the requests whose model has a price."""
    unpriced: int = 0
    """The number of requests whose model has no price in the package."""

    def __add__(self, other: Spending) -> Spending:
        return Spending(*map(add, astuple(self), astuple(other)))

    def __str__(self) -> str:
        """`2 requests, 1.2k tokens, $0.0031`"""
        amounts = [plural(self.requests, "request"), f"{format_count(self.tokens)} tokens"]
        if self.cost:
            amounts.append(format_dollars(self.cost))
        unpriced = f" (no price is pinned for {self.unpriced} of them)" if self.unpriced else ""
        return ", ".join(amounts) + unpriced


def sum_spending(package: Package, interactions: Iterable[Interaction]) -> Spending:
    prices = {route.name: route.price for _, route in iterate_routes(package) if route.price is not None}
    total = Spending()
    for interaction in interactions:
        question = parse_request(interaction.short_call())
        if question is None or interaction.failure is not None or interaction.stopped:
            continue
        reply = parse_reply(interaction, question)
        if isinstance(reply, Reply):
            price = prices.get(requested_model(question))
            cost = charged_cost(price, reply.usage, 0)
            total += Spending(1, charged_tokens(reply.usage, 0), cost, int(price is None))
    return total
