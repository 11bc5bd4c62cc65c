"""`run_tool`: results, timeouts, exceptions and truncation of tool calls."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.messages import Content, File, Image, Text, text_of
from agentrun.core.tool_results import clip_text
from agentrun.engine.tool_runner import run_tool, truncate_result
from agentrun.errors import CassetteError, ToolError

from .memory_worlds import Place, run, tool

IMAGE = Image("image/png", "sha256:1", 3)
FILE = File("a.txt", "text/plain", "sha256:2", 3)


class Tool:
    """An executor that does what it is told, after a while."""

    def __init__(self, act: Callable[[RunTool], Any], wait: int = 0) -> None:
        self.act = act
        self.wait = wait
        self.place = Place(executors={"python": self})

    async def run(self, call: RunTool) -> Any:
        await self.place.clock.sleep_until(self.place.clock.now() + self.wait)
        return self.act(call)

    def call(self, effect: RunTool) -> ToolFinished:
        finished = self.place.clock.run(run_tool(self.place.world, effect))
        assert isinstance(finished, ToolFinished)
        return finished


def returning(value: Any) -> Tool:
    return Tool(lambda call: value)


def raising(error: BaseException) -> Tool:
    def act(call: RunTool) -> None:
        raise error

    return Tool(act)


def test_result_of_a_call_has_its_text_and_image() -> None:
    executor = Tool(lambda call: ToolReturn((Text(f"{call.name} {call.arguments['id']} {call.key}"), IMAGE)))
    finished = executor.call(run("refund", {"id": 7}))
    assert finished == ToolFinished("c1.0", (Text("refund 7 key"), IMAGE))


@pytest.mark.parametrize(("wait", "late"), [(1000, False), (1001, True)])
def test_call_over_its_timeout_is_a_tool_timeout(wait: int, late: bool) -> None:
    executor = Tool(lambda call: ToolReturn((Text("done"),)), wait)
    finished = executor.call(run())
    if not late:
        assert finished == ToolFinished("c1.0", (Text("done"),))
        return
    assert finished.fault is not None
    fields = {"tool": "refund", "limit": 1000, "abandoned": True}
    assert (finished.fault.code, finished.fault.fields) == ("tool.timeout", fields)
    assert text_of(finished.parts).startswith("tool.timeout: ")


@pytest.mark.parametrize("error", [ValueError("bad id"), TimeoutError("its own"), SystemExit(2), KeyError("x")])
def test_tool_that_raises_is_a_tool_execution_fault(error: BaseException) -> None:
    finished = raising(error).call(run())
    kind = type(error).__name__
    assert finished.fault is not None
    assert (finished.fault.code, finished.fault.fields) == ("tool.execution", {"tool": "refund", "error": kind})
    assert text_of(finished.parts) == f"tool.execution: {kind}: {error}"


def test_error_shows_no_secret() -> None:
    key = "sk-ant-" + "a1B2c3D4" * 4  # made up
    assert key not in repr(raising(ValueError(f"401 for {key}")).call(run()))


def test_agentrun_error_of_a_tool_keeps_its_code() -> None:
    for error in (ToolError("tool.drift", "another", fields={"tool": "x"}), CassetteError("cassette.miss", "none")):
        finished = raising(error).call(run())
        assert finished.fault == Fault(error.code, error.message, error.fields)


@pytest.mark.parametrize("code", ["tool.fatal", "tool.aborted", "tool.drift", "tool.execution"])
def test_fault_returned_by_a_tool_is_kept(code: str) -> None:
    fault = Fault(code, "no more", {"tool": "refund", "reason": "x"})
    assert returning(ToolReturn((Text("seen"),), fault)).call(run()) == ToolFinished("c1.0", (Text("seen"),), fault)
    told = returning(ToolReturn((), fault)).call(run())
    assert (told.parts, told.fault) == ((Text(f"{code}: no more"),), fault)


@pytest.mark.parametrize(
    "rubbish",
    [
        None,
        "text",
        ToolReturn("text"),  # type: ignore[arg-type]  # wrong on purpose
        ToolReturn((b"x",)),  # type: ignore[arg-type]  # wrong on purpose
        ToolReturn((Text(7),)),  # type: ignore[arg-type]  # wrong on purpose
        ToolReturn((), "fault"),  # type: ignore[arg-type]  # wrong on purpose
        ToolReturn((), Fault("tool.invented", "x")),
        ToolReturn((), Fault("tool.fatal", "x", {"what": object()})),
    ],
)
def test_invalid_result_is_a_tool_execution_fault(rubbish: Any) -> None:
    finished = returning(rubbish).call(run())
    assert finished.fault is not None
    assert finished.fault.code == "tool.execution"


def test_list_of_parts_becomes_a_tuple() -> None:
    """In the form that a journal gives back: a resumed run must not differ."""
    given = returning(ToolReturn([Text("x")])).call(run())  # type: ignore[arg-type]  # wrong on purpose
    assert given == ToolFinished("c1.0", (Text("x"),))


def test_tool_cannot_change_the_call() -> None:
    arguments = {"order": {"amount": 10}}

    def act(call: RunTool) -> ToolReturn:
        call.arguments["order"]["amount"] = 10_000
        return ToolReturn((Text("done"),))

    Tool(act).call(run("refund", arguments))
    assert arguments == {"order": {"amount": 10}}


def test_long_result_is_a_blob() -> None:
    whole = "\n".join(str(number) for number in range(1000))
    executor = returning(ToolReturn((Text(whole),)))
    finished = executor.call(run(max_lines=10, max_bytes=100))
    assert text_of(finished.parts) == clip_text(whole, 10, 100)
    assert finished.blob is not None
    assert executor.place.blobs.get(finished.blob) == whole.encode()


@pytest.mark.parametrize(("lines", "cut"), [(10, False), (11, True)])
def test_result_over_the_line_limit_is_clipped(lines: int, cut: bool) -> None:
    finished = returning(ToolReturn((Text("x\n" * lines),))).call(run(max_lines=10, max_bytes=1000))
    assert (finished.blob is not None) == cut


@pytest.mark.parametrize(("size", "cut"), [(100, False), (101, True)])
def test_result_over_the_byte_limit_is_clipped(size: int, cut: bool) -> None:
    finished = returning(ToolReturn((Text("x" * size),))).call(run(max_lines=10, max_bytes=100))
    assert (finished.blob is not None) == cut


CONTENTS = st.lists(st.builds(Text, st.text(max_size=30)) | st.sampled_from([IMAGE, FILE]), max_size=6).map(tuple)


@given(CONTENTS, st.integers(1, 5), st.integers(1, 40))
def test_truncation_keeps_images_and_files_and_stores_the_whole_text(
    parts: tuple[Content, ...], lines: int, size: int
) -> None:
    """Pictures and files stay, in their order; the limits are for all texts together; nothing is lost."""
    blobs = Place().blobs
    result = truncate_result(ToolReturn(parts), blobs, run(max_lines=lines, max_bytes=size))
    read, blob = result.parts, result.whole
    assert [part for part in read if not isinstance(part, Text)] == [p for p in parts if not isinstance(p, Text)]
    assert text_of(read) == clip_text(text_of(parts), lines, size)
    if blob is None:
        assert read == parts
    else:
        assert blobs.get(blob).decode() == text_of(parts)


def test_lone_surrogate_in_a_result_is_replaced() -> None:
    finished = returning(ToolReturn((Text("a\ud800b"),))).call(run())
    assert (text_of(finished.parts), finished.blob) == ("a?b", None)


def test_executor_is_found_by_tool_then_server_then_kind() -> None:
    """A tool's own name wins over its server's, and that over its kind."""
    for names, wanted in (
        (("docs.search", "docs", "python"), "docs.search"),
        (("docs", "python"), "docs"),
        (("python",), "python"),
    ):
        executors = {name: _NamedObject(name) for name in names}
        place = Place(executors=executors)
        finished = place.clock.run(run_tool(place.world, run("docs.search", tool=tool())))
        assert isinstance(finished, ToolFinished)
        assert text_of(finished.parts) == wanted


class _NamedObject:
    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, call: RunTool) -> ToolReturn:
        return ToolReturn((Text(self.name),))
