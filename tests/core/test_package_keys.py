"""Every key of a package changes the behaviour of a run, or is assigned to another part."""

from collections.abc import Iterator

import pytest
from msgspec import Struct, inspect

from agentrun.core import model_reply
from agentrun.core.guards import find_guard_fault
from agentrun.core.package import Package

from ..packages import package
from .component_key_cases import PARTS_KEYS, call_of, with_tool
from .key_case import DONE_REPLY, Key, run_to_end
from .package_key_cases import KEYS
from .passive_key_cases import PASSED_KEYS, UNUSED_KEYS, PassedKey, UnusedKey
from .script import Run, calls_reply

ACTED_ON: dict[str, Key] = {**KEYS, **PARTS_KEYS}


def keys_of(type_: inspect.Type, prefix: str) -> Iterator[str]:
    """The keys of a part of a package, with those of its own parts. A sub-agent is a package and stands for itself."""
    match type_:
        case inspect.StructType(cls=cls) if cls is Package and prefix:
            yield prefix
        case inspect.StructType(tag=tag):
            start = ".".join(str(name) for name in (prefix, tag) if name)
            for field in type_.fields:
                yield from keys_of(field.type, f"{start}.{field.encode_name}" if start else field.encode_name)
        case inspect.UnionType(types=types):
            parts = [each for each in types if not isinstance(each, inspect.NoneType)]
            inner = [key for each in parts for key in keys_of(each, prefix)]
            yield from inner if len(parts) == len(types) else {prefix: None, **dict.fromkeys(inner)}
        case inspect.DictType(value_type=inner) | inspect.VarTupleType(item_type=inner):
            yield from {prefix: None, **dict.fromkeys(keys_of(inner, prefix))}
        case _:
            yield prefix


ALL = [*keys_of(inspect.type_info(Package), "")]


def differing(one: object, two: object, prefix: str = "") -> set[str]:
    """The keys in which two packages differ."""
    if one == two:
        return set()
    if isinstance(one, Struct) and type(one) is type(two) and prefix != "agents":
        tag = one.__struct_config__.tag
        start = ".".join(str(name) for name in (prefix, tag) if name)
        names = [f"{start}.{name}" if start else name for name in one.__struct_fields__]
        pairs = zip(one.__struct_fields__, names, strict=True)
        return {key for name, full in pairs for key in differing(getattr(one, name), getattr(two, name), full)}
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys() and _has_parts(one.values()):
        return {key for name in one for key in differing(one[name], two[name], prefix)}
    if isinstance(one, tuple) and isinstance(two, tuple) and len(one) == len(two) and _has_parts(one):
        return {key for pair in zip(one, two, strict=True) for key in differing(*pair, prefix)}
    return {prefix}


def _has_parts(values: object) -> bool:
    return all(isinstance(each, Struct) for each in values)  # type: ignore[attr-defined]  # looked at on purpose


def test_every_package_key_is_in_exactly_one_table() -> None:
    places = [*ACTED_ON, *PASSED_KEYS, *UNUSED_KEYS]
    assert len({*places}) == len(places), "a key has one place"
    assert {*ALL} == {*places}
    assert len({*ALL}) == len(ALL)


def test_keys_of_includes_nested_keys_of_every_part() -> None:
    """The list that everything is compared with has parts of every sort in it."""
    assert {"name", "budgets.turns", "model.routes", "model.routes.price", "model.routes.price.input"} <= {*ALL}
    assert {"tools", "tools.http.auth.secret", "tools.mcp.timeout", "agents", "sinks.stdout.delivery"} <= {*ALL}
    assert not {"model", "tools.http", "agents.name", "budgets"} & {*ALL}


def test_new_package_key_is_detected() -> None:
    class Wider(Package, frozen=True):
        mood: str

    assert {*keys_of(inspect.type_info(Wider), "")} - {*ALL} == {"mood"}


def test_differing_names_the_keys_in_which_packages_differ() -> None:
    base = package(**with_tool("http"))
    assert differing(base, base) == set()
    assert differing(base, package(**with_tool("http", url="https://b.test"))) == {"tools.http.url"}
    assert differing(base, package(**with_tool("python"))) == {"tools"}
    assert differing(base, package(**with_tool("http"), name="b", budgets={"turns": 1})) == {"name", "budgets.turns"}


@pytest.mark.parametrize("key", ACTED_ON)
def test_key_changes_the_behaviour_of_a_run(key: str) -> None:
    """One script, two packages that differ in the key alone, two behaviours."""
    case = ACTED_ON[key]
    one, two = package(**case.one), package(**case.two)
    assert differing(one, two) == {key}
    assert case.seen[0] != case.seen[1]
    assert (case.look(case.play(one)), case.look(case.play(two))) == case.seen


@pytest.mark.parametrize("key", PASSED_KEYS)
def test_key_is_passed_on_in_an_effect_and_changes_nothing_else(key: str) -> None:
    """The value reaches the part that acts on it, and changes nothing else."""
    case: PassedKey = PASSED_KEYS[key]
    one, two = package(**case.one), package(**case.two)
    assert differing(one, two) == {key}
    assert case.part
    runs = [case.play(agent) for agent in (one, two)]
    seen = [case.look(run) for run in runs]
    assert seen[0] != seen[1]
    assert runs[0].facts == runs[1].facts
    assert runs[0].effects != runs[1].effects


@pytest.mark.parametrize("key", UNUSED_KEYS)
def test_key_of_another_part_does_not_change_the_run(key: str) -> None:
    """The core does not look at it: the whole run is the same."""
    case: UnusedKey = UNUSED_KEYS[key]
    one, two = (package(**_with_python_tool(changes)) for changes in (case.one, case.two))
    assert differing(one, two) == {key}
    assert case.part
    first, second = (_run_python_tool(agent) for agent in (one, two))
    assert (first.facts, first.effects, first.state) == (second.facts, second.effects, second.state)


def _with_python_tool(changes: dict[str, dict[str, object]]) -> dict[str, object]:
    """The changes, and a tool that may be called."""
    base = with_tool("python")
    return {**base, **changes, "policy": {**base["policy"], **changes.get("policy", {})}}


def _run_python_tool(agent: Package) -> Run:
    return run_to_end(calls_reply(call_of("python")), DONE_REPLY)(agent)


def test_planted_guard_that_ignores_its_limit_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that does not read its limit is noticed."""
    base = package()
    monkeypatch.setattr(model_reply, "find_guard_fault", lambda agent, state: find_guard_fault(base, state))
    case = KEYS["guards.repeated_call"]
    seen = tuple(case.look(case.play(package(**changes))) for changes in (case.one, case.two))
    assert seen != case.seen
