"""Answers, settlements and requests with wrong values, and answers to wrong questions: nothing is written."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.compiler.package_file import seal_package
from agentrun.core import gate
from agentrun.core.facts import ApprovalAnswered, CallSettled, EarlierRuns
from agentrun.core.messages import File, Image, Text, User
from agentrun.core.outcome import Question
from agentrun.engine.answers import MAX_SETTLED_BYTES
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.handle import RunHandle
from agentrun.engine.request import Attachment, Request
from agentrun.errors import AgentrunError, RequestError
from agentrun.journal.records import read_records
from agentrun.testing import after, calls, text

from ..core.script import rule, writing
from ..packages import package
from .memory_runtime import ASKING_AGENT, Home
from .test_handle import home_with_interrupted_call

PAY = (calls("pay", n=1), text("Done."))
FILE = seal_package(package())


def asking(**given: Any) -> tuple[Home, RunHandle, Question]:
    home = Home(*PAY, **given)
    handle = home.start(ASKING_AGENT)
    waiting = home.wait(handle)
    assert waiting.status == "suspended"
    return home, handle, waiting.questions[0]


def assert_readable(home: Home, run: str = "r1") -> None:
    lines = home.journals.text(run).splitlines()
    assert tuple(read_records(lines)) == tuple(home.journals.records(run))


# --- values of the wrong kind ----------------------------------------------------------------------------------

LONE = "\ud800"
ANSWERS = "approved, approved_for_session, denied, timed_out, cancelled, unavailable"
WRONG_ANSWERS: list[tuple[tuple[Any, ...], str]] = [
    ((True, "Ada"), f"`answer` must be one of {ANSWERS}, not bool"),
    (("aproved", "Ada"), f'`answer` must be one of {ANSWERS}, not "aproved": did you mean "approved"?'),
    ((None, "Ada"), f"`answer` must be one of {ANSWERS}, not None"),
    (("approved", None), "`by` must be a string, not None"),
    (("approved", 7), "`by` must be a string, not int"),
    (("approved", " "), "`by` must say who decides this, for example a name; it is empty"),
    (("approved", LONE), "`by` contains a lone surrogate, which is no character and cannot be written"),
]


@pytest.mark.parametrize(("given", "message"), WRONG_ANSWERS, ids=[repr(given) for given, _ in WRONG_ANSWERS])
def test_wrong_answer_is_refused_with_a_sentence(given: tuple[Any, ...], message: str) -> None:
    home, handle, question = asking()
    before = home.journals.text("r1")
    for answer in (handle.answer, lambda *rest: home.runtime.answer("r1", *rest)):
        with pytest.raises((TypeError, ValueError)) as raised:
            answer(question, *given)
        assert str(raised.value) == message
    assert home.journals.text("r1") == before
    handle.answer(question, "approved", "Ada")
    assert home.wait(handle).is_finished, "the run is not damaged"


@pytest.mark.parametrize("question", [None, "c1.0", {"subject": "c1.0"}], ids=repr)
def test_answer_to_something_that_is_no_question_is_refused(question: Any) -> None:
    _, handle, _ = asking()
    with pytest.raises(TypeError, match="`question` must be a Question, not"):
        handle.answer(question, "approved", "Ada")


WRONG_SETTLEMENTS: list[tuple[tuple[Any, ...], str]] = [
    (("c1.0", "retrry", "ada"), '`how` must be one of retry, result, stop, not "retrry": did you mean "retry"?'),
    (("c1.0", True, "ada"), "`how` must be one of retry, result, stop, not bool"),
    ((1, "retry", "ada"), "`call` must be a string, not int"),
    (("c1.0", "retry", None), "`by` must be a string, not None"),
    (("c1.0", "result", "ada", "ok"), "`parts` must be a tuple of Text, Image and File parts, not str"),
    (("c1.0", "result", "ada", [Text("ok")]), "`parts` must be a tuple of Text, Image and File parts, not list"),
    (("c1.0", "result", "ada", (Text(5),)), "`parts` must be a tuple of Text, Image and File parts: Expected"),  # type: ignore[arg-type]  # the point
    (("c1.0", "result", "ada", ("ok",)), "`parts` must be a tuple of Text, Image and File parts: Expected"),
    (("c1.0", "result", "ada", (Text(LONE),)), "`parts` must be a tuple of Text, Image and File parts: "),
    (("c1.0", "result", "ada"), "`parts` is the result of the call: give it with how='result', and only then"),
    (("c1.0", "stop", "ada", (Text("ok"),)), "`parts` is the result of the call: give it"),
    (("c1.0", "result", "ada", (Text("x" * MAX_SETTLED_BYTES),)), "`parts` is larger than 50 KiB"),
]


@pytest.mark.parametrize(("given", "message"), WRONG_SETTLEMENTS, ids=range(len(WRONG_SETTLEMENTS)))
def test_wrong_settlement_is_refused_with_a_sentence(given: tuple[Any, ...], message: str) -> None:
    home = home_with_interrupted_call()
    handle = home.runtime.resume("r1")
    home.wait(handle)
    before = home.journals.text("r1")
    for settle in (handle.settle, lambda *rest: home.runtime.settle("r1", *rest)):
        with pytest.raises((TypeError, ValueError)) as raised:
            settle(*given)
        assert str(raised.value).startswith(message)
    assert home.journals.text("r1") == before


@pytest.mark.parametrize("by", [42, None, "", LONE], ids=repr)
def test_wrong_author_of_a_cancellation_is_refused(by: Any) -> None:
    home, handle, _ = asking()
    for cancel in (handle.cancel, lambda who: home.runtime.cancel("r1", who)):
        with pytest.raises((TypeError, ValueError), match="`by`"):
            cancel(by)
    assert "CancelRequested" not in home.kinds()
    assert_readable(home)


def test_other_wrong_arguments_of_handle_and_runtime_are_refused() -> None:
    home, handle, question = asking()
    wrong: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (handle.send, (7,)),
        (handle.send, (LONE,)),
        (handle.park, ("10s",)),
        (handle.park, (True,)),
        (handle.park, (-1,)),
        (home.runtime.park, (-1,)),
        (home.runtime.cancel, (42,)),
        (home.runtime.answer, (42, question, "approved", "ada")),
        (home.runtime.settle, ("../r1", "c1.0", "retry", "ada")),
        (home.runtime.resume, (None,)),
        (home.runtime.snapshot, ("a/b",)),
        (home.runtime.sessions.create, ("../s",)),
        (home.runtime.sessions.create, (7,)),
    ]
    before = home.journals.text("r1")
    for function, given in wrong:
        with pytest.raises((TypeError, ValueError), match="`"):
            function(*given)
    with pytest.raises(TypeError, match="`with_package` must be a PackageFile, not str"):
        home.runtime.resume("r1", with_package="support.yaml")  # type: ignore[arg-type]  # the point
    assert home.journals.text("r1") == before


# --- requests --------------------------------------------------------------------------------------------------

BAD_IMAGE = Image("image/png", "sha256:0", "big")  # type: ignore[arg-type]  # the point
WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"run": 7}, "`run` must be a run id, which is a string, not int"),
    ({"run": ""}, '`run` cannot be "", because a run id names a folder: use at most 64 letters'),
    *(
        ({"run": run}, "`run` cannot be ")
        for run in ("a/b", "..", ".", "a.b", "_a", "a b", "a\n", "a" * 65, "r1.", "r1.c1", "r1..c1.0", "é", "-r", "a\0")
    ),
    ({"session": 7}, "`session` must be a string, not int"),
    ({"session": "../s"}, '`session` cannot be "../s": use at most 64'),
    ({"agent": None}, "`agent` must be a string, not None"),
    ({"package": 5}, "`package` must be a package or its fingerprint, not int"),
    ({"package": package()}, "`package` must be a package or its fingerprint, not Package"),
    ({"message": b"Hi."}, "`message` must be a string, not bytes"),
    ({"message": LONE}, "`message` contains a lone surrogate"),
    ({"goes_on": 1}, "`goes_on` must be a bool, not int"),
    ({"params": [1]}, "`params` must be a dict, not list"),
    ({"params": {1: 2}}, "the names in `params` must be strings, not int"),
    ({"seed": 1}, "`seed` must be a string, not int"),
    ({"output": "text"}, "`output` must be a dict, not str"),
    ({"parent": "r0"}, "`parent` must be a Parent: "),
    ({"history": [User((Text("Hi."),))]}, "`history` must be a tuple of messages, not list"),
    ({"history": (EarlierRuns(),)}, "`history` must be a tuple of messages: "),
    ({"history": ("Hi.",)}, "`history` must be a tuple of messages: "),
    ({"history": (User((Text(7),)),)}, "`history` must be a tuple of messages: "),  # type: ignore[arg-type]  # the point
    ({"attachments": ["a.png"]}, "`attachments` must be a tuple of images and files, not list"),
    ({"attachments": (BAD_IMAGE,)}, "`attachments` must be a tuple of images and files: "),
    ({"attachments": (Attachment(File("a", "b", "c", 1), "text"),)}, "`attachments` must be images"),  # type: ignore[arg-type]  # the point
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), WRONG_FIELDS, ids=[repr(fields)[:40] for fields, _ in WRONG_FIELDS])
def test_request_with_a_wrong_field_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        Request(**{"agent": "triage", "package": FILE, **fields})
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    "run", ["r", "run-0a", "A", "7e57ab1e-0000-4000-8000-000000000001", "a_b-c", "a" * 64, "r1.c1.0", "r1.c12.3.c4.56"]
)
def test_names_and_ids_of_sub_agents_are_run_ids(run: str) -> None:
    assert Request(agent="triage", package=FILE, run=run).run == run


def test_run_id_that_the_runtime_creates_is_checked_too() -> None:
    home = Home(ids=lambda: "Run 1")
    with pytest.raises(ValueError, match='`run` cannot be "Run 1"'):
        home.start(run=None)
    assert home.journals.runs == ()


# --- closed, stale and altered questions -----------------------------------------------------------------------


def refusal(handle: RunHandle, question: Question) -> tuple[str, str, dict[str, Any]]:
    with pytest.raises(RequestError) as raised:
        handle.answer(question, "approved", "eve")
    assert raised.value.code == "run.invalid_state"
    return raised.value.fields["actual"], raised.value.message, raised.value.fields


@pytest.mark.parametrize(
    "change",
    [{"target": "other"}, {"value": {"n": 2}}, {"rules": ()}, {"value": object()}, {"value": {"n": "\ud800"}}],
    ids=["tool", "arguments", "rules", "no data", "lone surrogate"],
)
def test_question_with_changed_content_is_altered(change: dict[str, Any]) -> None:
    """The hash is right, but a person was shown something else."""
    home, handle, question = asking()
    state, message, fields = refusal(handle, replace(question, **change))
    assert state == "altered"
    assert "its tool, arguments or rules were changed after it was asked" in message
    assert fields == {"run": "r1", "subject": "c1.0", "expected": "open", "actual": "altered"}
    assert "ApprovalAnswered" not in home.kinds()


def test_question_of_another_run_is_altered() -> None:
    _, _, question = asking()
    home = Home(*PAY)
    handle = home.start(ASKING_AGENT, run="r2")
    home.wait(handle)
    state, message, _ = refusal(handle, question)
    assert state == "altered"
    assert message.startswith(
        'the question about "pay" (c1.0) is not what the run asked: another tool, other arguments'
    )


def test_question_of_the_former_package_is_stale_after_a_resume_with_another() -> None:
    home, _, question = asking()
    other = package(tools={"pay": writing()}, policy={"default": "deny", "rules": [rule("ask", "pay", id="r9")]})
    handle = home.runtime.resume("r1", with_package=seal_package(other))
    waiting = home.wait(handle)
    assert waiting.status == "suspended"
    assert refusal(handle, question)[0] == "stale"
    handle.answer(waiting.questions[0], "approved", "ada")
    assert home.wait(handle).is_finished


def test_answered_question_is_closed_also_after_the_run() -> None:
    home, handle, question = asking()
    handle.answer(question, "denied", "bob")
    said = 'the question about "pay" (c1.0) is already answered: denied by bob'
    assert refusal(handle, question)[:2] == ("closed", said)
    home.wait(handle)
    assert refusal(handle, question)[:2] == ("closed", said)
    assert [fact.by for fact in home.facts() if isinstance(fact, ApprovalAnswered)] == ["bob"]


def test_question_of_a_cancelled_run_is_stale() -> None:
    home, handle, question = asking()
    handle.cancel("ada")
    home.wait(handle)
    assert refusal(handle, question)[:2] == (
        "stale",
        'the question about "pay" (c1.0) is no longer asked: the run went on without an answer',
    )


def test_question_stays_open_over_a_resume_with_the_same_package() -> None:
    home, _, question = asking()
    handle = home.runtime.resume("r1")
    handle.answer(question, "approved", "ada")
    assert home.wait(handle).is_finished


def test_second_answer_is_refused_before_the_first_is_recorded() -> None:
    """The run is worked on, so both answers are only queued for it."""

    async def main() -> None:
        home = Home(calls("pay", n=1), after(60_000, text("Never."), clock=SystemClock()), clock=SystemClock())

        class Slow:
            async def answer(self, question: Question) -> tuple[str, str]:
                handle.answer(question, "denied", "bob")
                with pytest.raises(AgentrunError, match="already answered: denied by bob"):
                    handle.answer(question, "approved", "eve")
                answered.set()
                await asyncio.sleep(60)
                raise AssertionError("unreachable")

        answered = asyncio.Event()
        home.runtime._approver = Slow()  # type: ignore[assignment]  # it never answers
        handle = home.start(ASKING_AGENT)
        await answered.wait()
        handle.cancel("test")
        await handle.wait()
        assert [fact.answer for fact in home.facts() if isinstance(fact, ApprovalAnswered)] == ["denied"]

    asyncio.run(asyncio.wait_for(main(), 60))


# --- settlements -----------------------------------------------------------------------------------------------


def test_only_a_call_with_an_unknown_outcome_can_be_settled() -> None:
    home, handle, _ = asking()
    for call, status, said in (("c1.0", "asking", "has not started"), ("c9.9", "missing", "is not open in this run")):
        with pytest.raises(RequestError) as raised:
            handle.settle(call, "retry", "ada")
        assert (raised.value.code, raised.value.fields["actual"]) == ("run.invalid_state", status)
        assert said in raised.value.message
    assert not any(isinstance(fact, CallSettled) for fact in home.facts())


def test_sleeping_sub_agent_cannot_be_settled() -> None:
    from .test_runtime import PARENT, SCRIPT

    home = Home(*SCRIPT)
    handle = home.start(PARENT)
    assert home.wait(handle).status == "suspended"
    with pytest.raises(RequestError, match="settle the call of the sub-agent instead"):
        handle.settle("c1.0", "retry", "ada")


# --- planted ---------------------------------------------------------------------------------------------------


def test_check_detects_a_hash_that_leaves_out_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    real = gate._grant_hash
    monkeypatch.setattr(gate, "_grant_hash", lambda state, target, value, rules: real(state, target, None, rules))
    with pytest.raises(pytest.fail.Exception):
        test_question_with_changed_content_is_altered({"value": {"n": 2}})
