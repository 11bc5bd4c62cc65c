"""Each attack of `template_attacks.py` is refused or harmless within 1 s of CPU and 64 MiB (THREATS group B).

Each runs in a process of its own, whose memory is limited by the system; this file is also the program that starts
them. CPU time is measured in a unit of the same process, so that a slow machine does not fail. The planted twins run
there too, with a guard taken away: readings that do not see those would see nothing.
"""

import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

import agentrun.compiler.template as template
from agentrun.compiler import template_filters, template_parser, template_sandbox
from agentrun.compiler.template import TOO_LARGE, TemplateRenderError, check_template, render_template
from agentrun.compiler.template_meter import Bounds, RenderMeter

from .template_attacks import ATTACKS, BIG, MIB, TemplateValues, doublings, each

MEMORY = 64 * MIB
SECONDS = 1
"""On a machine that counts to `COUNT` in `UNIT` seconds. The costliest attack takes half of it."""
COUNT, UNIT = 10_000, 0.0005
KILL = 20
"""Seconds of CPU after which the system kills a process."""
UNBOUNDED = Bounds(steps=1 << 60, text=1 << 60, string=1 << 60, output=1 << 60, range=1 << 60)


class Twin(NamedTuple):
    seen_by: str
    """The reading that must show it: `seconds` or `bytes`."""
    source: str
    values: Callable[[], TemplateValues]
    guard: Callable[[], Any]
    """Takes the guard away."""


def without_cost(name: str) -> Callable[[], Any]:
    return lambda: mock.patch.dict(template_filters.FILTERS, {name: lambda _, value, *__, **___: value})


TWINS: dict[str, Twin] = {
    "no meter on loops": Twin(
        "seconds", each("", 9999, 4500), dict, lambda: mock.patch.object(template, "_BOUNDS", UNBOUNDED)
    ),
    "no meter on text": Twin(
        "bytes",
        doublings("{% set a = a ~ a %}", 24),
        dict,
        lambda: mock.patch.object(template, "_BOUNDS", UNBOUNDED),
    ),
    "no meter on all text": Twin(
        "bytes",
        "".join(f"{{% set a{n} = x ~ '' %}}" for n in range(100)),
        lambda: {"x": BIG},
        lambda: mock.patch.object(template, "_BOUNDS", Bounds(text=1 << 60)),
    ),
    "no meter on search": Twin(
        "seconds",
        each("{% if y in x %}{% endif %}", 1, 5000),
        ATTACKS["in, short"].values,
        lambda: mock.patch.object(RenderMeter, "search", return_value=None),
    ),
    "no cost of trim": Twin(
        "seconds",
        "{{ x|trim(y) }}",
        lambda: {"x": "\u4e00" * 900_000, "y": "\u4e01" * 4_500 + "\u4e00"},
        without_cost("trim"),
    ),
    "no cost of round": Twin("seconds", "{{ 5|round(-3200000) }}", dict, without_cost("round")),
    "no cost of wordwrap": Twin("bytes", *ATTACKS["wrapped by truth"][:2], without_cost("wordwrap")),
    "no limit of code": Twin(
        "bytes",
        ATTACKS["variables for each include"].source,
        dict,
        lambda: mock.patch.object(template_sandbox, "_MAX_CODE", 1 << 60),
    ),
    "no look before lexing": Twin(
        "bytes",
        ATTACKS["mebibyte of digits"].source,
        dict,
        lambda: mock.patch.object(template_parser, "_is_lexable", return_value=True),
    ),
}


class Measurement(NamedTuple):
    seconds: float
    bytes: int
    """Of memory; more than there is, if it did not suffice."""
    refused: bool


def memory(field: str) -> int:
    """VmRSS or VmHWM. Not `ru_maxrss`: that begins with the peak of the process we were forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024


def seconds_to_count() -> float:
    """Of this thread, because the clock of a process is coarse once its CPU time is limited."""
    begin, total = time.thread_time(), 0
    for number in range(COUNT):
        total += number * number % 7
    return time.thread_time() - begin


def measured(text: str, values: TemplateValues) -> Measurement:
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    memory_before, unit = memory("VmRSS"), seconds_to_count()
    refused, too_large = False, False
    begin = time.thread_time()
    try:
        refused = bool(check_template(text, dict.fromkeys(values)))
        render_template(text, values)
    except TemplateRenderError as error:
        refused, too_large = True, error.message == TOO_LARGE
    except MemoryError:
        too_large = True
    seconds = time.thread_time() - begin
    peak = memory("VmHWM") - memory_before
    unit = max(unit, seconds_to_count())
    return Measurement(seconds / unit * UNIT, MEMORY + 1 if too_large else peak, refused)


def measure_in_process(text: str, values: Callable[[], TemplateValues], guard: Callable[[], Any]) -> tuple[int, int]:
    """Measured in a process that has done nothing else: memory freed by another attack would not count."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        given = values()
        room = memory("VmSize") + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        resource.setrlimit(resource.RLIMIT_CPU, (KILL, KILL))
        with guard():
            os.write(send, json.dumps(measured(text, given)).encode())
        os._exit(0)
    os.close(send)
    return child, receive


def finished(child: int, receive: int) -> Measurement:
    os.waitpid(child, 0)
    with os.fdopen(receive) as result:
        said = result.read()
    return Measurement(*json.loads(said)) if said else Measurement(KILL, 0, False)


def main() -> None:
    measured("{{ x|upper|tojson }}{% if y is string %}{% endif %}{{ x|sort }}", {"x": "innocent"})
    work: dict[str, tuple[str, Callable[[], TemplateValues], Callable[[], Any]]] = {
        **{name: (attack.source, attack.values, nullcontext) for name, attack in ATTACKS.items()},
        **{name: twin[1:] for name, twin in TWINS.items()},
    }
    names = list(work)
    gc.freeze()  # otherwise a child looks for garbage in what it shares with us, which copies it
    found: dict[str, Measurement] = {}
    for pair in zip(names[::2], [*names[1::2], names[0]], strict=False):  # two at a time
        children = [measure_in_process(*work[name]) for name in pair]
        found |= {name: finished(*child) for name, child in zip(pair, children, strict=True)}
    sys.stdout.write(json.dumps(found))


def measure_all() -> dict[str, Measurement]:
    environment = {**os.environ, "PYTHONPATH": str(Path(template.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "tests.compiler.test_template_attacks"],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: Measurement(*reading) for name, reading in json.loads(done.stdout).items()}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux's /proc")
def test_attacks_are_stopped_and_missing_guards_are_seen() -> None:
    """One test, because two workers that share its attacks would each make all of them."""
    found = measure_all()
    bad = {
        name: found[name]
        for name, attack in ATTACKS.items()
        if found[name].seconds > SECONDS or found[name].bytes > MEMORY or found[name].refused is attack.harmless
    }
    assert bad == {}
    seen = {name: {"seconds": found[name].seconds > SECONDS, "bytes": found[name].bytes > MEMORY} for name in TWINS}
    assert [name for name, twin in TWINS.items() if not seen[name][twin.seen_by]] == []


if __name__ == "__main__":
    main()
