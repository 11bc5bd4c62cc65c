"""A process that carries cases out for another: `python -P -m agentrun.testing.suite.worker`.

It reads lines of JSON, first the orders, then portions of cases (`{"file": …, "names": […]}`), and writes one line for
each case, in their order. After the line `{"end": true}` it writes what was covered, and ends.

Rule 1  When nobody is left who gives portions, it ends at once, also in the middle of a case.
Rule 2  Whatever a case prints goes to standard error: standard output is for results alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO

import msgspec

from agentrun.testing.suite.carried import Orders, Suite
from agentrun.testing.suite.coverage import Covering
from agentrun.testing.suite.found import Found, read
from agentrun.testing.suite.memory import settled


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """Some cases of one file, or the end."""

    file: str = ""
    names: tuple[str, ...] = ()
    end: bool = False


def main() -> None:
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lines: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(lines,), name="agentrun-portions", daemon=True).start()
    covering = Covering()
    suite = Suite(msgspec.json.decode(lines.get(), type=Orders), covering=covering)
    with settled():
        _work(suite, lines, results)
    results.write(msgspec.json.encode(covering.to_dict()) + b"\n")
    results.close()
    os._exit(0)  # nothing is left to do, and nobody waits for what a case may have left running


def _work(suite: Suite, lines: SimpleQueue[bytes], results: BinaryIO) -> None:
    known: dict[str, dict[str, Found]] = {}
    while not (portion := msgspec.json.decode(lines.get(), type=Portion)).end:
        if portion.file not in known:
            known[portion.file] = {found.case.name: found for found in read(Path(portion.file))}
        for name in portion.names:
            results.write(msgspec.json.encode(suite.result(known[portion.file][name])) + b"\n")
            results.flush()


def _listen(lines: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(1)


if __name__ == "__main__":
    main()
