"""What the providers of a spec cannot do of what it asks: told when it is compiled, not when it runs.

A provider that is not one of ours is the host's own: nothing is known about it here.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.compiler.resolve import Spec
from agentrun.core.package import Package
from agentrun.providers.registry import CODECS, codec_for
from agentrun.spec.problems import Place, Problem
from agentrun.spec.tree import at, place_of


def unsupported(spec: Spec, package: Package) -> Iterator[Problem]:
    """Each thing at its key, once for each route that cannot do it."""
    for index, route in enumerate(package.model.routes):
        if route.provider not in CODECS:
            continue
        codec = codec_for(route.provider)
        for sentence in codec.problems(package.model, route, package.tools, package.output.schema is not None):
            hint = "remove it, or use another route" if index == 0 else "remove it, or this fallback"
            yield Problem(_place(spec, sentence, index), "spec.unsupported", sentence, hint)


def _place(spec: Spec, sentence: str, index: int) -> Place:
    """Where the key stands with which a sentence begins; for a fallback, the fallback itself."""
    if index > 0:
        return place_of(spec.root, ["model", "fallback", index - 1])
    path = sentence.partition(":")[0].partition(" ")[0].split(".")
    while len(path) > 1 and at(spec.root, path) is None:
        path.pop()
    return place_of(spec.root, path if at(spec.root, path) is not None else ["model"], key=True)
