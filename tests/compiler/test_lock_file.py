"""The lock: pinned prices and context windows, and missing, damaged or overridden locks."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from genai_prices import data_snapshot
from genai_prices.types import ConditionalPrice, ModelPrice, StartDateConstraint, Tier, TieredPrices

from agentrun.compiler.compile import compile, compile_spec
from agentrun.compiler.lock_file import Lock, _highest_price, agent_routes, lock_path, lock_text, make_lock, read_lock
from agentrun.core.package import Price
from agentrun.errors import SpecError
from agentrun.spec.problems import DocumentError
from agentrun.spec.v1.agent import Agent

from ..documents import Document, write, yaml_text

SPEC: Document = {
    "agentrun": "1",
    "name": "a",
    "model": {"provider": "openai", "name": "gpt-4.1-mini"},
    "instructions": "x",
    "budgets": {"cost": 1},
}


def agent(**model: Any) -> Agent:
    return msgspec.convert({**SPEC, "model": {**SPEC["model"], **model}}, Agent)


def spec(folder: Path, lock: Any = None, **model: Any) -> Path:
    write(folder, {"a.yaml": yaml_text({**SPEC, "model": {**SPEC["model"], **model}})})
    if lock is not None:
        write(folder, {"a.lock": lock if isinstance(lock, str) else json.dumps(lock)})
    return folder / "a.yaml"


def row(price: int | None = 7, window: int | None = 1000) -> Document:
    prices = None if price is None else {"input": price, "output": price, "cached_input": price}
    return {"price": prices, "context_window": window}


def lock(**routes: Document) -> Document:
    return {
        "agentrun_lock": "1",
        "origin": "a test",
        "routes": {key.replace("__", "/"): it for key, it in routes.items()},
    }


MINI = {"openai/gpt-4.1-mini": row()}


# --- made -------------------------------------------------------------------------------------------------


def test_lock_has_each_route_once() -> None:
    fallback = [
        "anthropic/claude-haiku-4-5",
        {"provider": "openai", "name": "gpt-4.1-mini", "base_url": "https://b.example"},
    ]
    assert agent_routes(agent(fallback=fallback)) == ["openai/gpt-4.1-mini", "anthropic/claude-haiku-4-5"]
    assert list(make_lock(agent(fallback=fallback)).routes) == ["openai/gpt-4.1-mini", "anthropic/claude-haiku-4-5"]


def test_lock_has_the_routes_of_profiles() -> None:
    found = make_lock(agent(), agent(name="gpt-4.1"), agent(name="gpt-4.1", stream=True))
    assert list(found.routes) == ["openai/gpt-4.1-mini", "openai/gpt-4.1"]


def test_prices_match_genai_prices() -> None:
    """Dollars for a million tokens there, micro-dollars here."""
    found = make_lock(agent()).routes["openai/gpt-4.1-mini"]
    _, model = data_snapshot.get_snapshot().find_provider_model("gpt-4.1-mini", None, "openai", None)
    assert isinstance(model.prices, ModelPrice)
    assert found.price is not None
    assert found.price.input == model.prices.input_mtok * 1_000_000  # type: ignore[operator]  # a plain price here
    assert found.price.output == model.prices.output_mtok * 1_000_000  # type: ignore[operator]  # as above
    assert found.context_window == model.context_window


@pytest.mark.parametrize("provider", ["openai", "openai-responses"])
def test_every_openai_format_has_a_price(provider: str) -> None:
    assert make_lock(agent(provider=provider)).routes[f"{provider}/gpt-4.1-mini"].price is not None


def test_gemini_models_have_a_price() -> None:
    assert (
        make_lock(agent(provider="gemini", name="gemini-2.5-flash")).routes["gemini/gemini-2.5-flash"].price is not None
    )


@pytest.mark.parametrize("route", ["openai/no-such-model", "nobody/gpt-4.1-mini", "openai/claude-haiku-4-5"])
def test_unknown_route_has_no_price(route: str) -> None:
    """Nothing is guessed: another provider's price is no price."""
    provider, _, name = route.partition("/")
    found = make_lock(agent(provider=provider, name=name)).routes[route]
    assert (found.price, found.context_window) == (None, None)


def tiers(base: str, *more: str) -> TieredPrices:
    return TieredPrices(
        base=Decimal(base), tiers=[Tier(start=100 * n, price=Decimal(one)) for n, one in enumerate(more, 1)]
    )


def test_tiered_prices_give_the_highest() -> None:
    prices = ModelPrice(input_mtok=tiers("1.25", "2.5"), output_mtok=tiers("15", "10"), cache_read_mtok=Decimal("0.1"))
    assert _highest_price(prices) == Price(input=2_500_000, output=15_000_000, cached_input=100_000)


def test_conditional_prices_give_the_highest() -> None:
    """A row without a price for cached tokens takes the full price for them."""
    old = ModelPrice(input_mtok=Decimal(3), output_mtok=Decimal(4), cache_read_mtok=Decimal("0.3"))
    new = ModelPrice(input_mtok=Decimal(2), output_mtok=Decimal(5))
    rows = [
        ConditionalPrice(prices=old),
        ConditionalPrice(constraint=StartDateConstraint(date(2030, 1, 1)), prices=new),
    ]
    assert _highest_price(rows) == Price(input=3_000_000, output=5_000_000, cached_input=2_000_000)


def test_prices_are_rounded_up_to_a_micro_dollar() -> None:
    prices = ModelPrice(input_mtok=Decimal("0.0000001"), output_mtok=Decimal("0.1234567"))
    assert _highest_price(prices) == Price(input=1, output=123_457, cached_input=1)


@pytest.mark.parametrize(
    "given", [{"input_mtok": Decimal(1)}, {"output_mtok": Decimal(1)}, {"requests_kcount": Decimal(1)}]
)
def test_incomplete_price_is_none(given: Any) -> None:
    assert _highest_price(ModelPrice(**given)) is None


def test_lock_text_is_indented_json_and_read_back(tmp_path: Path) -> None:
    made = make_lock(agent(fallback=["anthropic/claude-haiku-4-5", "nobody/x"]))
    path = spec(tmp_path, lock_text(made))
    assert read_lock(path) == made
    assert lock_text(made).startswith('{\n  "agentrun_lock": "1",\n  "origin": "genai-prices ')
    assert lock_text(made).endswith("}\n")
    assert lock_path(path) == tmp_path / "a.lock"


def test_shipped_lock_has_the_routes_of_its_spec() -> None:
    """The stale check compares routes only; where they come from is no part of it."""
    held = read_lock(Path(__file__).parents[2] / "specs/support.yaml")
    assert held is not None
    assert set(held.routes) == {"openai/gpt-4.1-mini", "anthropic/claude-haiku-4-5"}


# --- used -------------------------------------------------------------------------------------------------


def test_pinned_numbers_are_in_the_package(tmp_path: Path) -> None:
    (route,) = compile(spec(tmp_path, lock(**MINI))).agent.model.routes
    assert (route.price, route.context_window) == (Price(input=7, output=7, cached_input=7), 1000)


def test_price_and_window_of_the_spec_override_the_lock(tmp_path: Path) -> None:
    path = spec(tmp_path, lock(**MINI), price={"input": 1, "output": 2}, context_window="5k")
    (route,) = compile(path).agent.model.routes
    assert route.price == Price(input=1_000_000, output=2_000_000, cached_input=1_000_000)
    assert route.context_window == 5000


def test_spec_overrides_each_value_separately(tmp_path: Path) -> None:
    (route,) = compile(spec(tmp_path, lock(**MINI), context_window=5)).agent.model.routes
    assert (route.price, route.context_window) == (Price(input=7, output=7, cached_input=7), 5)


@pytest.mark.parametrize(
    "held", [None, lock(), lock(**{"openai/gpt-4.1": row()}), lock(**{"openai/gpt-4.1-mini": row(None)})]
)
def test_cost_budget_without_a_price_is_a_problem(held: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        compile(spec(tmp_path, held))
    assert [problem.code for problem in caught.value.problems] == ["spec.no_price"]


def test_no_price_is_needed_without_a_cost_budget(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": yaml_text({**SPEC, "budgets": {"tokens": 5}})})
    (route,) = compile(tmp_path / "a.yaml").agent.model.routes
    assert (route.price, route.context_window) == (None, None)


# --- damaged ----------------------------------------------------------------------------------------------

GOOD = json.dumps(lock(**MINI))
DAMAGED: dict[str, str] = {
    "empty": "",
    "cut": GOOD[:-5],
    "no lock": '{"name": "x"}',
    "a list": "[]",
    "merge conflict": f"<<<<<<< ours\n{GOOD}\n=======\n",
    "another version": GOOD.replace('"agentrun_lock": "1"', '"agentrun_lock": "2"'),
    "unknown key": GOOD.replace('"origin"', '"origins"'),
    "unknown field": GOOD.replace('"cached_input"', '"cached"'),
    "text for a number": GOOD.replace("1000", '"1000"'),
    "a fraction": GOOD.replace("1000", "1000.5"),
    "negative price": GOOD.replace('"input": 7', '"input": -7', 1),
    "negative window": GOOD.replace("1000", "-1"),
    "window of nothing": GOOD.replace("1000", "0"),
    "not exact": GOOD.replace("1000", "99999999999999999999"),
    "nan": GOOD.replace("1000", ".nan"),
    "key twice": GOOD.replace('"openai/gpt-4.1-mini"', '"openai/gpt-4.1-mini": null, "openai/gpt-4.1-mini"'),
    "deep": "[" * 100_000,
    "control characters": '{"\x1b[2J": 1}',
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_lock_is_a_problem(name: str, tmp_path: Path) -> None:
    """Never ignored, and never an exception of another kind."""
    assert DAMAGED[name] != GOOD
    path = spec(tmp_path, DAMAGED[name])
    with pytest.raises(DocumentError):
        read_lock(path)
    errors = compile_spec(path).errors
    assert errors
    assert {problem.file.rpartition("/")[2] for problem in errors} == {"a.lock"}


def test_binary_lock_or_folder_is_a_problem(tmp_path: Path) -> None:
    path = spec(tmp_path)
    (tmp_path / "a.lock").write_bytes(b"\xff\xfe\x00")
    assert [problem.code for problem in compile_spec(path).errors] == ["spec.encoding"]
    (tmp_path / "a.lock").unlink()
    (tmp_path / "a.lock").mkdir()
    assert [problem.code for problem in compile_spec(path).errors] == ["spec.file_unreadable"]


def test_missing_lock_is_none(tmp_path: Path) -> None:
    assert read_lock(spec(tmp_path)) is None


def test_lock_text_omits_empty_servers() -> None:
    assert msgspec.json.decode(lock_text(Lock(origin="x", routes={}))) == {
        "agentrun_lock": "1",
        "origin": "x",
        "routes": {},
    }
