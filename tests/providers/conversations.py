"""Hypothesis strategies for conversations of every shape."""

from hypothesis import strategies as st

from agentrun.core.messages import Assistant, Content, Message, Reasoning, Refusal, Text, ToolCall, ToolResult, User

from .exchange import NOTE, PDF, PICTURE

_texts = st.builds(Text, st.sampled_from(["", "a", "é 😀", 'q"\\\n']))
_content_parts: st.SearchStrategy[Content] = st.one_of(_texts, st.sampled_from([PICTURE]), st.sampled_from([PDF, NOTE]))
_contents = st.lists(_content_parts, max_size=3).map(tuple)
_users = st.builds(User, _contents)
_assistant_parts = st.one_of(_texts, st.builds(Refusal, st.just("no")), st.just(Reasoning("{}", "other/x")))
_calls = st.builds(
    ToolCall,
    st.just(""),
    st.sampled_from(["now", "docs.search", "no such/tool"]),
    st.sampled_from(["{}", "", "{"]),
    st.sampled_from([None, "", "call_a", "call_b"]),
    st.sampled_from([None, "openai/gpt-4.1-mini", "other/model"]),
)


@st.composite
def turns(draw: st.DrawFn, turn: int) -> list[Message]:
    """An answer, the results of its calls, and what else is said then."""
    calls = [
        ToolCall(f"c{turn}.{index}", call.tool, call.arguments, call.wire_id, call.route)
        for index, call in enumerate(draw(st.lists(_calls, max_size=3)))
    ]
    results = [ToolResult(call.id, draw(_contents)) for call in calls]
    return [
        Assistant((*draw(st.lists(_assistant_parts, max_size=2)), *calls)),
        *results,
        *draw(st.lists(_users, max_size=2)),
    ]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = [*draw(st.lists(_users, max_size=2))]
    for turn in range(1, draw(st.integers(1, 4))):
        messages += draw(turns(turn))
    return messages
