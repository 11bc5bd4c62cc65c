"""A spec file as one whole: overlaid, inlined, checked against the schema, turned into models.

A spec is read in this order: text → tree → schema → files → profile and settings → schema again → models. Each step
works on what the one before it gave; problems of all steps are collected.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from pathlib import Path

import msgspec
from msgspec import Struct

from agentrun.compiler.inline import Inliner
from agentrun.spec.check import check
from agentrun.spec.files import Project, find_project, read_source
from agentrun.spec.load import load
from agentrun.spec.overlay import overlaid, setting
from agentrun.spec.problems import DocumentError, Problem, Source, did_you_mean, quoted
from agentrun.spec.tree import Mapping, plain
from agentrun.spec.v1.agent import Agent


class Spec(Struct, frozen=True):
    """A spec that its schema accepts. What it means is checked when it is compiled."""

    source: Source
    project: Project
    root: Mapping
    """The whole document, with nothing left to read."""
    agent: Agent

    @property
    def path(self) -> Path:
        return self.source.path


class Read(Struct, frozen=True):
    """What came of reading a spec: a spec, problems, or both."""

    spec: Spec | None
    problems: tuple[Problem, ...]
    profiles: tuple[str, ...] = ()


def read_spec(path: Path, profile: str | None = None, settings: SequenceOf[str] = ()) -> Read:
    """Reads a spec file with one profile and `--set` values on top."""
    try:
        project = find_project(path)
        source = read_source(path, root=project.root)
    except DocumentError as error:
        return Read(None, tuple(error.problems))
    document = load(source, "agent")
    if document.root is None:
        return Read(None, document.problems)
    inliner = Inliner(project, source.path.parent)
    root = document.root
    problems = list(document.problems)
    profiles = root.get("profiles")
    named = profiles.entries if isinstance(profiles, Mapping) else {}
    if not problems:
        root = inliner.inlined(root)
        try:
            root = _with_overlays(root, profile, settings, inliner)
        except DocumentError as error:
            problems += error.problems
        problems += inliner.problems
        problems += check(root, "agent") if not problems else []
    if problems:
        return Read(None, tuple(problems), tuple(named))
    return Read(Spec(source, project, root, _agent(root)), (), tuple(named))


def _with_overlays(root: Mapping, profile: str | None, settings: SequenceOf[str], inliner: Inliner) -> Mapping:
    if profile is not None:
        root = overlaid(root, inliner.inlined(_profile(root, profile)))
    for text in settings:
        root = overlaid(root, inliner.inlined(setting(text)))
    return root


def _profile(root: Mapping, name: str) -> Mapping:
    profiles = root.get("profiles")
    found = profiles.get(name) if isinstance(profiles, Mapping) else None
    if isinstance(found, Mapping):
        return found
    known = list(profiles.entries) if isinstance(profiles, Mapping) else []
    hint = did_you_mean(name, known) or (f"profiles: {', '.join(known)}" if known else "the spec has no profiles")
    place = root.entries["profiles"].key_place if known else root.place
    raise DocumentError([Problem(place, "spec.unknown_profile", f"profile {quoted(name)} is not declared", hint)])


def _agent(root: Mapping) -> Agent:
    """The models. The schema and the models are generated from each other, so nothing is refused here."""
    return msgspec.convert(plain(root), Agent)
