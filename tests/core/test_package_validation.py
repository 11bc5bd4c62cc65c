"""`validate_package`: which packages are refused, with a pointer to the problem."""

import math
from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import fields, replace

from agentrun.core import package_validation
from agentrun.core.package import LEGAL_RULINGS, RULINGS, Package
from agentrun.core.package_validation import NUMBER_RANGES, validate_package
from agentrun.errors import PackageError

from ..packages import ROUTE, package
from .script import SINK, TOOL, agent_tool, hook, mcp_tool, rule, tool

PRICE = {"input": 1, "output": 1, "cached_input": 1}
OWN = {key: TOOL[key] for key in TOOL if key not in ("kind", "module", "function", "source", "isolation")}
HTTP = OWN | {
    "kind": "http",
    "url": "https://shop.example",
    "method": "GET",
    "query": {},
    "headers": {},
    "body": None,
    "auth": None,
    "result": None,
    "hosts": ["shop.example"],
    "private_network": False,
    "max_bytes": 1,
}
SHELL = OWN | {
    "kind": "shell",
    "argv": ["ls"],
    "env": {},
    "cwd": ".",
    "stdin": None,
    "exits": [0, 1],
    "dash_args": False,
    "grace": 1,
}
FULL_PACKAGE = package(
    model={
        "routes": [ROUTE | {"price": PRICE, "context_window": 1}] * 2,
        "temperature": 1.0,
        "top_p": 1.0,
        "seed": 1,
        "max_output_tokens": 1,
    },
    tools={"python": tool(), "http": HTTP, "shell": SHELL, "mcp": mcp_tool("x"), "agent": agent_tool()},
    agents={"agent": msgspec.to_builtins(package(model={"routes": [ROUTE | {"price": PRICE}]}))},
    budgets={"turns": 1, "tokens": 1, "cost": 1, "time": 1, "tool_calls": 1, "grace": 1},
    limits={"depth": 1},
    guards={"empty_outcome": 1},
    admission={"max_chars": 1},
    policy={"rules": [rule("defer", until=1), rule("defer", id="r2", wait=1)]},
    sinks={"report": SINK},
    hooks=[hook("on_stop")],
    session={"max_runs": 1},
)
"""A package that has a value wherever a package can have one."""


def validation_error(agent: Package) -> PackageError:
    with pytest.raises(PackageError) as caught:
        validate_package(agent)
    assert (caught.value.code, caught.value.exit_code) == ("package.invalid", 2)
    assert caught.value.fields["pointer"] in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value


def pointer(**changes: Any) -> str:
    """Where a package with these changes is not sound."""
    return str(validation_error(package(**changes)).fields["pointer"])


def test_valid_packages_pass() -> None:
    validate_package(package())
    validate_package(FULL_PACKAGE)


# --- ranges ----------------------------------------------------------------------------------------------------


def numbers(kind: Any, place: str = "") -> Iterator[str]:
    """The places of all numbers that something of a type can have."""
    if kind in (int, float):
        yield place
    elif get_origin(kind) in (Union, UnionType):
        for each in get_args(kind):
            yield from numbers(each, place)
    elif get_origin(kind) in (tuple, dict):
        yield from numbers(get_args(kind)[get_origin(kind) is dict], f"{place}/*")
    elif isinstance(kind, type) and issubclass(kind, Struct):
        for field in fields(kind):
            if field.name != "agents":
                yield from numbers(field.type, f"{place}/{field.name}")


def test_every_number_has_a_range() -> None:
    assert {*numbers(Package)} == {*NUMBER_RANGES}


def test_number_without_a_range_is_detected() -> None:
    class More(Package, frozen=True):
        patience: int

    assert {*numbers(More)} - {*NUMBER_RANGES} == {"/patience"}


def find_places(part: Any, steps: list[str]) -> Iterator[tuple[str, ...]]:
    """Where in a part a place is found: names and indices for its stars."""
    if not steps:
        yield ()
        return
    first, *others = steps
    keys = [first]
    if first == "*":
        keys = list(part) if isinstance(part, dict) else [str(index) for index in range(len(part))]
    for key in keys:
        inner = part.get(key) if isinstance(part, dict) else part[int(key)]
        if inner is not None:
            yield from ((key, *rest) for rest in find_places(inner, others))


def package_with(steps: tuple[str, ...], value: Any) -> Package:
    """The whole package with another value at one place."""
    plain = msgspec.json.decode(msgspec.json.encode(FULL_PACKAGE))
    inner = plain
    for step in steps[:-1]:
        inner = inner[int(step)] if isinstance(inner, list) else inner[step]
    inner[int(steps[-1]) if isinstance(inner, list) else steps[-1]] = value
    return msgspec.convert(plain, Package)


CASES = [
    (place, steps)
    for place in NUMBER_RANGES
    for steps in find_places(msgspec.to_builtins(FULL_PACKAGE), place.split("/")[1:])
]


def test_every_range_has_a_test_case() -> None:
    assert {place for place, _ in CASES} == {*NUMBER_RANGES}


@pytest.mark.parametrize(("place", "steps"), CASES, ids=["/".join(steps) for _, steps in CASES])
def test_number_outside_its_range_is_refused(place: str, steps: tuple[str, ...]) -> None:
    """From both sides."""
    least, most = NUMBER_RANGES[place]
    within = [least, *((10**12,) if most is None else (most,))]
    beyond = [least - 1, *(() if most is None else (most + 1,))]
    for value in within:
        validate_package(package_with(steps, value))
    for value in beyond:
        error = validation_error(package_with(steps, value))
        assert error.fields["pointer"] == "/" + "/".join(steps)
        assert str(value) in error.message


def test_nan_and_infinity_are_refused() -> None:
    agent = package()
    for value in (math.nan, math.inf, -math.inf):
        odd = replace(agent, model=replace(agent.model, temperature=value))
        assert validation_error(odd).fields["pointer"] == "/model/temperature"


def test_numbers_in_schemas_and_options_have_no_range() -> None:
    """Numbers in schemas, options and values to set are nobody's limits."""
    args = {"type": "object", "properties": {"q": {"type": "integer", "minimum": -5}}}
    validate_package(
        package(
            model={"routes": [ROUTE | {"options": {"top_k": -1}}]},
            params={"size": {"type": "integer", "default": -1}},
            tools={"t": tool(args=args)},
            policy={"rules": [rule("modify", "t", set={"q": -1})]},
        )
    )


# --- the model -------------------------------------------------------------------------------------------------


def test_model_needs_routes_and_prices_for_a_cost_budget() -> None:
    assert pointer(model={"routes": []}) == "/model/routes"
    priced = ROUTE | {"price": PRICE}
    validate_package(package(model={"routes": [priced, priced]}, budgets={"cost": 1}))
    assert pointer(model={"routes": [priced, ROUTE]}, budgets={"cost": 1}) == "/model/routes/1/price"
    validate_package(package(model={"routes": [priced, ROUTE]}))


# --- the policy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", LEGAL_RULINGS)
@pytest.mark.parametrize("ruling", RULINGS)
def test_ruling_must_be_legal_at_its_stage(stage: str, ruling: str) -> None:
    rules = [rule("allow"), rule(ruling, on=stage)]
    if ruling in dict(LEGAL_RULINGS)[stage]:  # type: ignore[index]  # any pair is tried
        validate_package(package(policy={"rules": rules}))
    else:
        assert pointer(policy={"rules": rules}) == "/policy/rules/1/ruling"


WRONG = ["", "args.x >", "nobody == 1", "\ud800"]


@pytest.mark.parametrize("condition", WRONG)
def test_invalid_condition_is_refused(condition: str) -> None:
    rules = [rule("allow", when="args.amount <= 50"), rule("deny", when=condition)]
    assert validation_error(with_rules(rules)).fields["pointer"] == "/policy/rules/1/when"
    seen = replace(FULL_PACKAGE, tools={"t": replace(FULL_PACKAGE.tools["python"], visible=condition)})
    assert validation_error(seen).fields["pointer"] == "/tools/t/visible"


def with_rules(rules: list[dict[str, Any]]) -> Package:
    """Made by hand: no file could hold half a surrogate pair."""
    (*whole,) = package(policy={"rules": [each | {"when": None} for each in rules]}).policy.rules
    made = tuple(replace(one, when=each["when"]) for one, each in zip(whole, rules, strict=True))
    return replace(FULL_PACKAGE, policy=replace(FULL_PACKAGE.policy, rules=made))


def test_valid_condition_passes() -> None:
    validate_package(package(tools={"t": tool(visible="spend.turns < 3")}))


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "[a"])
def test_invalid_mask_pattern_is_refused(pattern: str) -> None:
    validate_package(package(policy={"rules": [rule("modify", on="output", mask=["[0-9]+", "a|b"])]}))
    masks = ["[0-9]+", pattern]
    assert pointer(policy={"rules": [rule("modify", on="output", mask=masks)]}) == "/policy/rules/0/mask"


# --- schemas and agents ----------------------------------------------------------------------------------------

INVALID_SCHEMAS: list[dict[str, Any]] = [
    {"type": "nonsense"},
    {"$ref": "https://example.com/x.json"},
    {"$ref": "file:///etc/hostname"},
    {"type": "string", "pattern": "(?=a)b"},
]


@pytest.mark.parametrize("schema", INVALID_SCHEMAS)
def test_invalid_schema_is_refused(schema: dict[str, Any]) -> None:
    assert pointer(output={"schema": schema}) == "/output/schema"
    assert pointer(params={"a": {"type": "string"}, "b": schema}) == "/params/b"
    assert pointer(tools={"t": tool(args=schema)}) == "/tools/t/args"
    actions = {"do": {"type": "object"}, "undo": schema}
    assert pointer(tools={"t": tool(actions=actions)}) == "/tools/t/actions/undo"
    inner = {"agents": {"a": msgspec.to_builtins(package())}}
    assert pointer(tools={"a": agent_tool(args=schema)}, **inner) == "/tools/a/args"


def test_schema_that_is_no_json_is_refused() -> None:
    odd = replace(FULL_PACKAGE, output=replace(FULL_PACKAGE.output, schema={"const": object()}))
    assert validation_error(odd).fields["pointer"] == "/output/schema"


def test_schema_error_without_a_message_has_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(schema: bytes) -> None:
        raise RecursionError

    monkeypatch.setattr(package_validation, "schema_validator", silent)
    assert "RecursionError" in validation_error(package(output={"schema": {}})).message


def test_cost_budget_needs_prices_of_sub_agent_routes() -> None:
    """So their routes need prices too."""
    paid, priced = {"budgets": {"cost": 1}}, {"model": {"routes": [ROUTE | {"price": PRICE}]}}
    for child in (package(), package(**priced)):
        inner = {"tools": {"a": agent_tool()}, "agents": {"a": msgspec.to_builtins(child)}}
        validate_package(package(**inner, **priced))
        if child.model.routes[0].price is None:
            assert pointer(**inner, **paid, **priced) == "/agents/a/model/routes/0/price"
        else:
            validate_package(package(**inner, **paid, **priced))


def test_sub_agents_are_validated() -> None:
    inner = package(tools={"deeper": agent_tool()}, agents={"deeper": msgspec.to_builtins(package())})
    validate_package(package(tools={"a": agent_tool()}, agents={"a": msgspec.to_builtins(inner)}))
    assert pointer(tools={"a": agent_tool()}) == "/agents/a"
    wrong = replace(inner, agents={"deeper": package(budgets={"turns": 0})})
    outer = {"tools": {"a": agent_tool()}, "agents": {"a": msgspec.to_builtins(wrong)}}
    assert pointer(**outer) == "/agents/a/agents/deeper/budgets/turns"


def test_first_problem_is_reported() -> None:
    assert (
        pointer(budgets={"turns": 0}, model={"routes": []}, output={"schema": INVALID_SCHEMAS[0]}) == "/budgets/turns"
    )


@pytest.mark.parametrize(
    ("deferral", "place"),
    [
        (rule("allow", until=1), "until"),
        (rule("ask", wait=1), "wait"),
        (rule("deny", person=True), "person"),
        (rule("defer", until=1, wait=1), "wait"),
        (rule("defer", wait=1, person=True), "person"),
    ],
)
def test_end_of_a_deferral_is_alone_and_with_defer(deferral: dict[str, Any], place: str) -> None:
    assert pointer(policy={"rules": [rule("allow"), deferral]}) == f"/policy/rules/1/{place}"


@pytest.mark.parametrize("end", [{"until": 0}, {"wait": 1}, {"person": True}])
def test_deferral_with_one_end_is_valid(end: dict[str, Any]) -> None:
    validate_package(package(policy={"rules": [rule("defer", **end)]}))
