"""A spec file as one whole: overlaid, inlined, checked against the schema, turned into models.

A spec is read in this order: text → tree → schema → files → profile and settings → schema again → models. Each step
works on what the one before it gave; problems of all steps are collected. Where something is wrong it is left out, and
the steps go on with the rest: a misspelt key does not hide what is wrong in a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from pathlib import Path

import msgspec
from msgspec import Struct

from agentrun.compiler.inline import Inliner
from agentrun.compiler.salvage import salvaged
from agentrun.spec.check import faults
from agentrun.spec.document import MAX_DEPTH
from agentrun.spec.files import read_source
from agentrun.spec.load import Document, load
from agentrun.spec.overlay import overlaid, setting
from agentrun.spec.problems import DocumentError, Place, Problem, Source, did_you_mean, quoted
from agentrun.spec.project import Project, find_project
from agentrun.spec.schema_keys import SHARED_KEYS
from agentrun.spec.tree import Mapping, Sequence, plain
from agentrun.spec.v1.agent import Agent


class Spec(Struct, frozen=True):
    """A spec that its schema accepts. What it means is checked when it is compiled."""

    source: Source
    project: Project
    root: Mapping
    """The whole document, with nothing left to read."""
    agent: Agent
    files: tuple[Source, ...] = ()
    """The files that are part of it."""

    @property
    def path(self) -> Path:
        return self.source.path

    @property
    def size(self) -> int:
        return sum(len(source.text) for source in (self.source, *self.files))


class Read(Struct, frozen=True):
    """What came of reading a spec: the spec, or what is wrong with it."""

    spec: Spec | None
    problems: tuple[Problem, ...]
    profiles: tuple[str, ...] = ()
    rest: Spec | None = None
    """A spec that could not be read as a whole, without what is wrong in it: good for finding more problems only."""
    doubtful: frozenset[str] = frozenset()
    """The sections that the rest has only in part."""
    document: Document | None = None
    """The document as it was written, with what the rest lacks."""


def read_spec(
    path: Path, profile: str | None = None, settings: SequenceOf[str] = (), document: Document | None = None
) -> Read:
    """Reads a spec file with one profile and `--set` values on top. `document`: the file, if it was read before."""
    try:
        project = find_project(path)
        document = document or load(read_source(path, root=project.root), "agent")
    except DocumentError as error:
        return Read(None, tuple(error.problems))
    source = document.source
    if document.root is None:
        return Read(None, document.problems)
    problems = list(document.problems)
    root, doubtful = salvaged(document.root, document.faults) if document.faults else (document.root, frozenset())
    inliner = Inliner(project, source.path.parent)
    root = inliner.inlined(root)
    profiles = root.get("profiles")
    named = tuple(profiles.entries) if isinstance(profiles, Mapping) else ()
    try:
        root = _with_overlays(root, profile, settings, inliner)
    except DocumentError as error:
        problems += error.problems
    is_same = not (document.faults or inliner.sources or profile or settings or _has_parts(document.root))
    found = [] if is_same else faults(root, "agent")  # what is the same was looked at already
    problems += [*inliner.problems, *(fault.problem for fault in found)]
    files = tuple(inliner.sources.values())
    if not problems:
        return Read(Spec(source, project, root, _agent(root), files), (), named, document=document)
    root, more = salvaged(root, found)
    whole = not faults(root, "agent")
    rest = Spec(source, project, root, _agent(root), files) if whole else None
    return Read(None, tuple(problems), named, rest, doubtful | more | inliner.doubtful, document)


def _has_parts(root: Mapping) -> bool:
    return any(isinstance(root.get(key), Sequence) for key in SHARED_KEYS)


def _with_overlays(root: Mapping, profile: str | None, settings: SequenceOf[str], inliner: Inliner) -> Mapping:
    if profile is not None:
        root = overlaid(root, inliner.inlined(_profile(root, profile)))
    for text in settings:
        if text.partition("=")[0].count(".") > MAX_DEPTH:
            place = Place(Source(Path("--set"), "--set", ""), 1, 1)
            message = f"--set names a key deeper than {MAX_DEPTH} levels"
            raise DocumentError([Problem(place, "spec.setting", message)])
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
