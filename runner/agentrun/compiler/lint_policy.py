"""Checks of the policy: each rule is valid and can match, and each tool can be allowed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET

from agentrun.compiler.condition_types import ArgumentSchemas, ConditionTypes, known_fields
from agentrun.compiler.conditions import cheap_constant_value, check_condition
from agentrun.compiler.patterns import pattern_problems
from agentrun.compiler.spec_reader import Spec
from agentrun.core.condition import CONDITION_VARIABLES
from agentrun.core.package import LEGAL_RULINGS, RULINGS, matches_pattern
from agentrun.spec.problems import Problem, did_you_mean, quote_text
from agentrun.spec.tree import DocumentPath, ScalarNode
from agentrun.spec.v1.policy import TARGET_PATTERN, RuleSpec, parse_until
from agentrun.spec.v1.tools import McpToolSpec, ToolSpec


def rule_rulings(rule: RuleSpec) -> list[str]:
    return [ruling for ruling in RULINGS if getattr(rule, ruling) is not UNSET]


def rule_targets(rule: RuleSpec) -> tuple[str, ...]:
    targets = getattr(rule, rule_rulings(rule)[0])
    return (targets,) if isinstance(targets, str) else tuple(targets)


def duplicate_names(path: DocumentPath, key: str, names: Sequence[str]) -> Iterator[Problem]:
    """Yield the names in a list of mappings that occur twice. `key`: the key of the name."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            message = f"{quote_text(name)} is used twice; the first is at {path.at(first[name], key).place}"
            yield path.at(index, key).problem("spec.duplicate_name", message, "rename one of them")


def _until_problems(path: DocumentPath, rule: RuleSpec, ruling: str) -> Iterator[Problem]:
    if rule.until is UNSET:
        return
    if ruling != "defer":
        message = f"`until` works only with `defer`, but the ruling is `{ruling}`"
        yield path.at("until").key_problem("spec.until", message, "remove it, or write `defer` instead")
        return
    try:
        parse_until(rule.until)
    except (ValueError, OverflowError):
        message = f"there is no time {quote_text(rule.until)}"
        yield path.at("until").problem("spec.until", message, "write a time such as 2026-12-24T08:00:00Z")


class PolicyLint:
    def __init__(self, spec: Spec, schemas: ArgumentSchemas, doubtful: frozenset[str]) -> None:
        self.spec = spec
        self.schemas = schemas
        self.incomplete_sections = doubtful
        """Sections that could not be read completely. Nothing is reported as missing from them."""
        self.tools = spec.agent.tools
        self.tool_targets = ToolTargets(self.tools)
        self._types = ConditionTypes()
        self._args: dict[tuple[str, ...], Collection[str] | None] = {}
        self._schemas: dict[tuple[str, ...], ArgumentSchemas] = {}
        """By the targets of a rule, because a thousand rules may have the same ones."""

    def problems(self) -> Iterator[Problem]:
        rules = self.spec.agent.policy.rules
        is_valid = True
        for index, rule in enumerate(rules):
            for problem in self._rule(self.spec.at("policy", "rules", index), rule):
                is_valid = False
                yield problem
        if not self.incomplete_sections.isdisjoint(("tools", "policy")):
            return
        if self.tools and self.spec.agent.policy.default is UNSET:
            has_policy = "policy" in self.spec.root.entries
            what = "`default: deny`" if has_policy else "`policy: {default: deny}`"
            hint = f"add {what} and rules that allow the tools the agent needs"
            path = self.spec.at("policy" if has_policy else "tools")
            yield path.key_problem("spec.no_default", "an agent with tools needs `policy.default`", hint)
        elif is_valid:
            yield from self._unreachable_tools(rules)

    def _rule(self, path: DocumentPath, rule: RuleSpec) -> Iterator[Problem]:
        rulings = rule_rulings(rule)
        if len(rulings) != 1:
            message = f"rule {quote_text(rule.id)} has {len(rulings) or 'no'} rulings"
            yield path.problem("spec.rulings", message, f"use exactly one of {', '.join(RULINGS)}")
            return
        ruling = rulings[0]
        if ruling not in LEGAL_RULINGS[rule.on]:
            message = f"`{ruling}` is not possible on {rule.on}"
            hint = f"possible on {rule.on}: {', '.join(LEGAL_RULINGS[rule.on])}"
            yield path.at(ruling).key_problem("spec.illegal_ruling", message, hint)
        else:
            yield from self._modify(path, rule, ruling)
        yield from _until_problems(path, rule, ruling)
        for node in path.at(ruling).scalars:
            yield from self._target(node, rule.on)
        if condition := path.at("when").scalar:
            yield from self._condition(condition, rule)

    def _modify(self, path: DocumentPath, rule: RuleSpec, ruling: str) -> Iterator[Problem]:
        wanted = "set" if rule.on == "tool_call" else "mask"
        for key in ("set", "mask"):
            is_set = getattr(rule, key) is not UNSET
            if ruling == "modify" and key == wanted and not is_set:
                message = f"`modify` on {rule.on} needs `{wanted}`"
                example = "set: {argument: value}" if wanted == "set" else 'mask: ["[0-9]{16}"]'
                yield path.at("modify").key_problem("spec.modify", message, f"add {example}")
            elif is_set and (ruling != "modify" or key != wanted):
                message = f"`{key}` works only with `modify` on {'tool_call' if key == 'set' else 'other stages'}"
                yield path.at(key).key_problem("spec.modify", message, "remove it")
        for node in path.at("mask").scalars:
            yield from pattern_problems(node)
        if ruling == "modify" and rule.set is not UNSET and (known := self._known_args(rule_targets(rule))) is not None:
            for field in rule.set:
                if field not in known:
                    message = f"argument {quote_text(field)} is not declared"
                    yield path.at("set", field).key_problem("spec.unknown_arg", message, did_you_mean(field, known))

    def _target(self, node: ScalarNode, stage: str) -> Iterator[Problem]:
        target = node.text
        if not re.fullmatch(TARGET_PATTERN, target):
            yield Problem(node.place, "spec.wrong_text", f"{quote_text(target)} is neither a tool name nor a glob")
        elif stage == "delivery":
            sinks = self.spec.agent.sinks
            if "sinks" not in self.incomplete_sections and not any(matches_pattern(target, sink) for sink in sinks):
                hint = did_you_mean(target, sinks) or f"sinks: {', '.join(sinks) or 'none'}"
                yield Problem(node.place, "spec.rule_never_matches", f"there is no sink {quote_text(target)}", hint)
        elif stage not in ("tool_call", "tool_result"):
            if target != "*":
                message = f"a rule on {stage} cannot name a tool"
                yield Problem(node.place, "spec.rule_never_matches", message, 'write "*"')
        elif "tools" not in self.incomplete_sections and not self.tool_targets.matching_patterns(target):
            yield self._no_such_tool(node)

    def _no_such_tool(self, node: ScalarNode) -> Problem:
        target, servers = node.text, self.tool_targets.servers
        server = target.partition(".")[0]
        if target in servers:
            hint = f'write "{target}.*" for all its tools'
            return Problem(node.place, "spec.rule_never_matches", f"{quote_text(target)} is a server, not a tool", hint)
        if server in servers:
            shown = ", ".join(name for name, owner in self.tool_targets.patterns.items() if owner == server)
            message = f"the agent cannot use {quote_text(target)}"
            hint = f"the `tools:` of {server} are {shown}"
            return Problem(node.place, "spec.rule_never_matches", message, hint)
        near = did_you_mean(target, [*self.tools, *(f"{name}.*" for name in servers)])
        hint = near or f"tools: {', '.join(self.tools) or 'none'}"
        if "*" in target:
            return Problem(node.place, "spec.rule_never_matches", f"{quote_text(target)} matches no tool", hint)
        return Problem(node.place, "spec.unknown_tool", f"tool {quote_text(target)} is not declared", hint)

    def _condition(self, node: ScalarNode, rule: RuleSpec) -> Iterator[Problem]:
        calls = None if self.tool_targets.servers or "tools" in self.incomplete_sections else self.tools
        fields: dict[str, Collection[str] | None] = dict(CONDITION_VARIABLES)
        fields |= {"params": self.spec.agent.params, "calls": calls}
        if rule.on in ("tool_call", "tool_result"):
            fields["args"] = self._known_args(rule_targets(rule))
        else:
            del fields["args"]
        found = check_condition(node, fields)
        if not found and "args" in fields:
            found = self._types.problems(node, self._argument_schemas(rule_targets(rule)))
        yield from found
        if not found and cheap_constant_value(node.text) is False:
            hint = "fix the condition, or remove `when:` to match always"
            yield Problem(node.place, "spec.rule_never_matches", "this condition is never true", hint)

    def _known_args(self, targets: tuple[str, ...]) -> Collection[str] | None:
        """Return the arguments of the tools that a rule applies to; None if those of one tool are unknown."""
        if targets not in self._args:
            fields = [known_fields(schema) for schema in self._argument_schemas(targets).values()]
            is_known = fields and None not in fields
            self._args[targets] = {name: None for each in fields for name in each or ()} if is_known else None
        return self._args[targets]

    def _argument_schemas(self, targets: tuple[str, ...]) -> ArgumentSchemas:
        """Return the schemas of the tools that a rule applies to. An unknown tool allows anything."""
        if targets not in self._schemas:
            globs = [target for target in targets if "*" in target]
            found = {
                name: schema
                for name, schema in self.schemas.items()
                if name in targets or any(matches_pattern(glob, name) for glob in globs)
            }
            for pattern in (each for target in targets for each in self.tool_targets.matching_patterns(target)):
                is_known = any(matches_pattern(pattern, name) for name in found) if "*" in pattern else pattern in found
                found |= {} if is_known else {pattern: {}}
            self._schemas[targets] = found if "tools" not in self.incomplete_sections else {**found, "*": {}}
        return self._schemas[targets]

    def _unreachable_tools(self, rules: list[RuleSpec]) -> Iterator[Problem]:
        calls = [(rule, rule_rulings(rule)[0]) for rule in rules if rule.on == "tool_call"]
        ends = [rule for rule, ruling in calls if ruling == "defer" and rule.until is not UNSET]
        stops = [rule for rule, ruling in calls if ruling in ("defer", "deny", "interrupt") and rule not in ends]
        stopped = self._always_stopped(stops)
        lifted = [rule for rule in ends if rule.until == "person"]
        permitting = [*lifted, *(rule for rule, ruling in calls if ruling in ("allow", "ask"))]
        permitted = [target for rule in permitting for target in rule_targets(rule)]
        allowed = {name for target in permitted for name in self.tool_targets.matching_patterns(target)}
        for name, owner in self.tool_targets.patterns.items():
            if name in stopped:
                reason = f"rule {quote_text(stopped[name])} always stops it"
                hint = "add a `when:` to that rule, or remove the tool"
            elif self.spec.agent.policy.default == "deny" and name not in allowed:
                reason = "no rule allows it or asks for approval"
                target = f'"{name}"' if "*" in name else name
                hint = f"add under policy.rules:  - {{id: {f'allow-{owner}'[:64]}, allow: {target}}}"
            else:
                continue
            message = f"tool {quote_text(name)} can never run, because {reason}"
            patterns = self.spec.at("tools", owner, "tools").scalars
            found = (each.place for each in patterns if f"{owner}.{each.text}" == name)
            place = next(found, self.spec.at("tools", owner).key_place)
            yield Problem(place, "spec.tool_never_allowed", message, hint)

    def _always_stopped(self, rules: list[RuleSpec]) -> dict[str, str]:
        """Return the tools that are always stopped, each with the rule that stops it."""
        found: dict[str, str] = {}
        for rule in rules:
            if rule.when is UNSET or cheap_constant_value(rule.when) is True:
                for target in rule_targets(rule):
                    for name in self.tool_targets.matching_patterns(target):
                        if glob_covers(target, name):
                            found.setdefault(name, rule.id)
        return found


def globs_overlap(one: str, other: str) -> bool:
    """Return whether a name can match both. Two globs can differ only before the first star and after the last one,
    because everything else can be matched by a star of the other glob."""
    if "*" not in other:
        return matches_pattern(one, other)
    if "*" not in one:
        return matches_pattern(other, one)
    (start, *_, end), (other_start, *_, other_end) = one.split("*"), other.split("*")
    begins = start.startswith(other_start) or other_start.startswith(start)
    return begins and (end.endswith(other_end) or other_end.endswith(end))


def overlaps_any(target: str, globs: Iterable[str]) -> bool:
    return any(globs_overlap(target, each) for each in globs)


def glob_covers(target: str, pattern: str) -> bool:
    """Return whether a target matches every name that a pattern matches."""
    return matches_pattern(target, pattern.replace("*", "\0"))


class ToolTargets:
    """The tools of an agent that rules can name, including the known tools of MCP servers."""

    def __init__(self, tools: Mapping[str, ToolSpec]) -> None:
        self.tools = tools
        self.servers = [name for name, tool in tools.items() if isinstance(tool, McpToolSpec)]
        self.patterns: dict[str, str] = {}
        """The name or glob of a tool → the tool or server it belongs to."""
        for name, tool in tools.items():
            if isinstance(tool, McpToolSpec):
                self.patterns.update({f"{name}.{inner}": name for inner in tool.tools})
            else:
                self.patterns[name] = name
        self._globs = [pattern for pattern in self.patterns if "*" in pattern]
        self._found: dict[str, tuple[str, ...]] = {}

    def matching_patterns(self, target: str) -> tuple[str, ...]:
        if target not in self._found:
            exact = [target] if target in self.patterns else []
            among = self.patterns if "*" in target else dict.fromkeys([*exact, *self._globs])
            self._found[target] = tuple(pattern for pattern in among if globs_overlap(target, pattern))
        return self._found[target]

    def matching_tools(self, targets: Iterable[str]) -> set[str]:
        return {self.patterns[pattern] for target in targets for pattern in self.matching_patterns(target)}
