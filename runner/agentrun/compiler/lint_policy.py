"""What the policy says: rules that are well formed, that can match, and that leave every tool a way to be allowed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from collections.abc import Mapping as MappingOf

from msgspec import UNSET

from agentrun.compiler.conditions import check_condition, constant
from agentrun.compiler.patterns import pattern_problems
from agentrun.compiler.resolve import Spec
from agentrun.compiler.targets import Subjects, covers
from agentrun.core.condition import VARIABLES
from agentrun.core.names import matches
from agentrun.core.package import LEGAL_RULINGS, RULINGS
from agentrun.spec.problems import Place, Problem, did_you_mean, quoted
from agentrun.spec.tree import Scalar, Sequence, at, place_of
from agentrun.spec.v1.policy import TARGET, Rule

Args = MappingOf[str, Collection[str] | None]


def rulings_of(rule: Rule) -> list[str]:
    return [ruling for ruling in RULINGS if getattr(rule, ruling) is not UNSET]


def targets_of(rule: Rule) -> tuple[str, ...]:
    """The targets of a rule with one ruling."""
    given = getattr(rule, rulings_of(rule)[0])
    return (given,) if isinstance(given, str) else tuple(given)


class _Arguments(Collection[str]):
    """The arguments of several tools, without a set of them all for each of a thousand rules."""

    def __init__(self, parts: list[Collection[str]]) -> None:
        self._parts = parts

    def __contains__(self, name: object) -> bool:
        return any(name in part for part in self._parts)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for part in self._parts for name in part))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class PolicyLint:
    """Checks one policy against the tools and sinks it rules on."""

    def __init__(self, spec: Spec, args: Args, doubtful: frozenset[str] = frozenset()) -> None:
        self.spec = spec
        self.args = args
        self.doubtful = doubtful
        """Sections that lack something: what is not found there may well be meant to be there."""
        self.tools = spec.agent.tools
        self.subjects = Subjects(self.tools)

    def problems(self) -> Iterator[Problem]:
        usable: list[tuple[Rule, bool]] = []
        for index, rule in enumerate(self.spec.agent.policy.rules):
            found = list(self._rule(index, rule))
            yield from found
            if len(rulings_of(rule)) == 1:
                usable.append((rule, not found))
        if not self.doubtful.isdisjoint(("tools", "policy")):
            return
        if self.tools and self.spec.agent.policy.default is UNSET:
            has_policy = "policy" in self.spec.root.entries
            place = place_of(self.spec.root, ["policy" if has_policy else "tools"], key=True)
            what = "`default: deny` to it" if has_policy else "`policy: {default: deny}`"
            hint = f"add {what}, and rules that allow what the agent needs"
            yield Problem(place, "spec.no_default", "an agent with tools needs a policy with a default", hint)
        elif all(fine for _, fine in usable) and len(usable) == len(self.spec.agent.policy.rules):
            yield from self._never_allowed([rule for rule, _ in usable])

    def _place(self, index: int, *path: str | int, key: bool = False) -> Place:
        return place_of(self.spec.root, ["policy", "rules", index, *path], key=key)

    def _rule(self, index: int, rule: Rule) -> Iterator[Problem]:
        rulings = rulings_of(rule)
        if len(rulings) != 1:
            message = f"rule {quoted(rule.id)} has {len(rulings) or 'no'} rulings"
            hint = f"give exactly one of {', '.join(RULINGS)}"
            yield Problem(self._place(index), "spec.rulings", message, hint)
            return
        ruling = rulings[0]
        if ruling not in LEGAL_RULINGS[rule.on]:
            message = f"{ruling} is not legal on {rule.on}"
            hint = f"legal there: {', '.join(LEGAL_RULINGS[rule.on])}"
            yield Problem(self._place(index, ruling, key=True), "spec.illegal_ruling", message, hint)
        else:
            yield from self._rewriting(index, rule, ruling)
        yield from self._targets(index, rule, ruling)
        yield from self._condition(index, rule)

    def _rewriting(self, index: int, rule: Rule, ruling: str) -> Iterator[Problem]:
        wanted = "set" if rule.on == "tool_call" else "mask"
        for key in ("set", "mask"):
            given = getattr(rule, key) is not UNSET
            if ruling == "modify" and key == wanted and not given:
                message = f"modify on {rule.on} needs `{wanted}`"
                example = "set: {argument: value}" if wanted == "set" else 'mask: ["[0-9]{16}"]'
                yield Problem(self._place(index, "modify", key=True), "spec.modify", message, f"add {example}")
            elif given and (ruling != "modify" or key != wanted):
                message = f"`{key}` belongs to modify on {'tool_call' if key == 'set' else 'other stages'}"
                yield Problem(self._place(index, key, key=True), "spec.modify", message, "remove it")
        if rule.mask is not UNSET:
            nodes = at(self.spec.root, ["policy", "rules", index, "mask"])
            for node in nodes.items if isinstance(nodes, Sequence) else ():
                if isinstance(node, Scalar):
                    yield from pattern_problems(node)
        if ruling == "modify" and rule.set is not UNSET:
            known = self._known_args(targets_of(rule))
            for field in rule.set if known is not None else ():
                if known is not None and field not in known:
                    place = self._place(index, "set", field, key=True)
                    hint = did_you_mean(field, known)
                    yield Problem(place, "spec.unknown_arg", f"argument {quoted(field)} is not declared", hint)

    def _targets(self, index: int, rule: Rule, ruling: str) -> Iterator[Problem]:
        node = at(self.spec.root, ["policy", "rules", index, ruling])
        nodes = node.items if isinstance(node, Sequence) else (node,)
        for item in nodes:
            if isinstance(item, Scalar):
                yield from self._target(item, rule.on)

    def _target(self, node: Scalar, stage: str) -> Iterator[Problem]:
        target = node.text
        if not re.fullmatch(TARGET, target):
            yield Problem(node.place, "spec.wrong_text", f"{quoted(target)} is not the name of a tool or a glob")
        elif stage == "delivery":
            sinks = self.spec.agent.sinks
            if "sinks" not in self.doubtful and not any(matches(target, sink) for sink in sinks):
                hint = did_you_mean(target, sinks) or f"sinks: {', '.join(sinks) or 'none'}"
                yield Problem(node.place, "spec.rule_never_matches", f"no sink is called {quoted(target)}", hint)
        elif stage not in ("tool_call", "tool_result"):
            if target != "*":
                message = f"a rule on {stage} has no tools to name"
                yield Problem(node.place, "spec.rule_never_matches", message, 'write "*"')
        elif "tools" not in self.doubtful and not self.subjects.named(target):
            yield self._no_such_tool(node)

    def _no_such_tool(self, node: Scalar) -> Problem:
        target, servers = node.text, self.subjects.servers
        server = target.partition(".")[0]
        if target in servers:
            hint = f'write "{target}.*" for all its tools'
            return Problem(node.place, "spec.rule_never_matches", f"{quoted(target)} is a server, not a tool", hint)
        if server in servers:
            shown = ", ".join(name for name, owner in self.subjects.patterns.items() if owner == server)
            message = f"the agent does not see {quoted(target)}"
            hint = f"of this server it sees {shown}: see the `tools:` of {server}"
            return Problem(node.place, "spec.rule_never_matches", message, hint)
        near = did_you_mean(target, [*self.tools, *(f"{name}.*" for name in servers)])
        hint = near or f"tools: {', '.join(self.tools) or 'none'}"
        if "*" in target:
            return Problem(node.place, "spec.rule_never_matches", f"{quoted(target)} matches no tool", hint)
        return Problem(node.place, "spec.unknown_tool", f"tool {quoted(target)} is not declared", hint)

    def _condition(self, index: int, rule: Rule) -> Iterator[Problem]:
        node = at(self.spec.root, ["policy", "rules", index, "when"])
        if not isinstance(node, Scalar):
            return
        fields: dict[str, Collection[str] | None] = dict(VARIABLES)
        fields["params"] = self.spec.agent.params
        fields["calls"] = None if self.subjects.servers or "tools" in self.doubtful else self.tools
        fields["args"] = self._known_args(targets_of(rule))
        if rule.on != "tool_call" and rule.on != "tool_result":
            del fields["args"]
        found = check_condition(node, fields)
        yield from found
        if not found and constant(node.text) is False:
            hint = "a rule without `when:` always matches"
            yield Problem(node.place, "spec.rule_never_matches", "this condition is never true", hint)

    def _known_args(self, targets: tuple[str, ...]) -> Collection[str] | None:
        """The arguments of the tools a rule rules on; None when one of them is not known."""
        parts: list[Collection[str]] = []
        for name in self.subjects.tools_named(targets):
            arguments = self.args.get(name)
            if arguments is None or "tools" in self.doubtful:
                return None
            parts.append(arguments)
        return _Arguments(parts) if parts else None

    def _never_allowed(self, rules: list[Rule]) -> Iterator[Problem]:
        calls = [(rule, rulings_of(rule)[0]) for rule in rules if rule.on == "tool_call"]
        stopped = self._stopped([rule for rule, ruling in calls if ruling in ("defer", "deny", "interrupt")])
        allowed: set[str] = set()
        for rule, ruling in calls:
            if ruling in ("allow", "ask"):
                allowed.update(name for target in targets_of(rule) for name in self.subjects.named(target))
        default = self.spec.agent.policy.default
        for name, owner in self.subjects.patterns.items():
            if name in stopped:
                message = f"tool {quoted(name)} can never be allowed: rule {quoted(stopped[name])} always stops it"
                hint = "give that rule a `when:`, or remove the tool"
                yield Problem(self._tool_place(name, owner), "spec.tool_never_allowed", message, hint)
            elif default == "deny" and name not in allowed:
                target = f'"{name}"' if "*" in name else name
                rule_id = f"allow-{owner}"[:64]
                hint = f"add under policy.rules:  - {{id: {rule_id}, allow: {target}}}"
                message = f"tool {quoted(name)} can never be allowed: no rule allows it or asks for it"
                yield Problem(self._tool_place(name, owner), "spec.tool_never_allowed", message, hint)

    def _stopped(self, rules: list[Rule]) -> dict[str, str]:
        """What is always stopped, and the rule that does it."""
        found: dict[str, str] = {}
        for rule in rules:
            if rule.when is UNSET or constant(rule.when) is True:
                for target in targets_of(rule):
                    for name in self.subjects.named(target):
                        if covers(target, name):
                            found.setdefault(name, rule.id)
        return found

    def _tool_place(self, name: str, owner: str) -> Place:
        seen = at(self.spec.root, ["tools", owner, "tools"])
        for item in seen.items if isinstance(seen, Sequence) else ():
            if isinstance(item, Scalar) and f"{owner}.{item.text}" == name:
                return item.place
        return place_of(self.spec.root, ["tools", owner], key=True)
