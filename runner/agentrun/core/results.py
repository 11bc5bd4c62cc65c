"""How much of a tool's result the model reads.

Rule 1  More than so many lines or bytes is cut to its head and its tail, with a line between them that says so.
Rule 2  What is cut never splits a character, and is never longer than the limit and that line.
Rule 3  Head and tail have one half of the limit each: what one of them does not need is not given to the other.
"""

from __future__ import annotations

from agentrun.core.facts_base import Fault
from agentrun.core.messages import Content, Text, words


def clip_parts(parts: tuple[Content, ...], max_lines: int, max_bytes: int) -> tuple[tuple[Content, ...], bytes | None]:
    """What the model reads of a result, and all its text when that is not all."""
    whole = words(parts)
    encoded = whole.encode("utf-8", "replace")  # half of a surrogate pair is no text: no journal could hold it
    text = encoded.decode()
    cut = clipped(text, max_lines, max_bytes)
    if cut == whole:
        return parts, None
    first = next(index for index, part in enumerate(parts) if isinstance(part, Text))
    others = tuple(part for part in parts if not isinstance(part, Text))
    return (*parts[:first], Text(cut), *others[first:]), None if cut == text else encoded


def fault_parts(fault: Fault) -> tuple[Content, ...]:
    """What the model reads of a fault."""
    return (Text(f"{fault.code}: {fault.message}"),)


def clipped(text: str, max_lines: int, max_bytes: int) -> str:
    """The text, or as much of its beginning and end as is allowed."""
    data = text.encode("utf-8", "replace")
    if len(text.splitlines()) <= max_lines and len(data) <= max_bytes:
        return text
    head = _text(data[: -(-max_bytes // 2)]).splitlines(keepends=True)[: -(-max_lines // 2)]
    tail = _text(data[max(len(data) - max_bytes // 2, 0) :]).splitlines(keepends=True)
    first, last = "".join(head), "".join(tail[max(len(tail) - max_lines // 2, 0) :])
    hidden = len(data) - len((first + last).encode())
    border = "\n" if first[-1:].splitlines() == [first[-1:]] else ""
    return f"{first}{border}[… {hidden} of {len(data)} bytes left out …]\n{last}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "ignore")
