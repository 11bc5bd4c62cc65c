"""Sessions, and the messages, counts and approvals that they carry from run to run."""

from typing import Any

import pytest
from msgspec import UNSET

from agentrun.canonical_json import fingerprint
from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import EarlierRuns, MessageOrigin, Modify, RunStarted
from agentrun.core.messages import Assistant, Message, ToolCall, ToolResult, User, text_of
from agentrun.core.outcome import Outcome
from agentrun.core.package import Package
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.request import Request
from agentrun.engine.sessions import Sessions, earlier_runs, restore_session
from agentrun.errors import AgentrunError
from agentrun.testing import approving, call, calls, fails, hook, reply, scripted, stub, text

from ..core import script
from ..core.script import agent_tool, rule, tool, writing
from ..packages import ROUTE, package
from .memory_runtime import ASKING_AGENT, TOOLS, Home


class SessionHome(Home):
    """A session, one run after the other."""

    def __init__(self, *items: Any, **given: Any) -> None:
        super().__init__(*items, **given)
        self.runtime.sessions.create("s")
        self.count = 0

    def say(self, message: str | None, what: Package | None = None, **request: Any) -> Outcome:
        self.count += 1
        return self.run(what, message=message, session="s", run=f"r{self.count}", **request)

    def earlier(self, number: int) -> EarlierRuns:
        started = self.facts(f"r{number}")[0]
        assert isinstance(started, RunStarted)
        return started.earlier

    @property
    def heard(self) -> list[str]:
        """What the model was told last, in short."""
        return [short(message) for message in self.model.requests[-1].messages]


def short(message: Message) -> str:
    match message:
        case User(parts=parts):
            return f"user {text_of(parts)}"
        case ToolResult(call=call, parts=parts):
            return f"{call} {text_of(parts)}"
        case Assistant():
            return " ".join(["assistant", message.text, *(call.id for call in message.calls)])


# --- what is carried ------------------------------------------------------------------------------------------


def test_full_history_is_carried_to_the_next_run() -> None:
    talk = SessionHome(calls("search", q="a"), text("One."), calls("search", q="b"), text("Two."), text("Three."))
    talk.say("First.", TOOLS)
    talk.say("Second.", TOOLS)
    talk.say("Third.", TOOLS)
    assert talk.heard == [
        *("user First.", "assistant  r1.c1.0", "r1.c1.0 found", "assistant One."),
        *("user Second.", "assistant  r2.c1.0", "r2.c1.0 found", "assistant Two."),
        "user Third.",
    ]
    assert (talk.earlier(1).runs, talk.earlier(3).runs, talk.earlier(3).turns) == (0, 2, 4)


@pytest.mark.parametrize(
    ("session", "heard"),
    [
        ({"history": "full", "max_runs": 1}, ["user Two?", "assistant  r2.c1.0", "r2.c1.0 found", "assistant Two."]),
        ({"history": "answers"}, ["user One?", "assistant One.", "user Two?", "assistant Two."]),
        ({"history": "answers", "max_runs": 1}, ["user Two?", "assistant Two."]),
        ({"history": "none"}, []),
    ],
)
def test_session_settings_limit_the_carried_history(session: dict[str, Any], heard: list[str]) -> None:
    agent = package(tools={"search": tool()}, policy={"default": "allow"}, session=session)
    talk = SessionHome("One.", calls("search", q="b"), text("Two."), text("Three."))
    talk.say("One?", agent)
    talk.say("Two?", agent)
    talk.say("Three?", agent)
    assert talk.heard == [*heard, "user Three?"]
    assert talk.earlier(3).runs == 2, "counted, whether carried or not"


def test_failed_run_carries_its_message_only_in_full_history() -> None:
    """In full, what was said before the failure; of answers, nothing."""
    for history, heard in (("full", ["user One?"]), ("answers", [])):
        agent = package(session={"history": history})
        talk = SessionHome(fails("provider.fatal"), text("Two."))
        talk.say("One?", agent)
        talk.say("Two?", agent)
        assert talk.heard == [*heard, "user Two?"]


def test_call_without_a_result_is_not_carried() -> None:
    """A call without its result is not carried."""
    talk = SessionHome(calls("pay", n=1), text("Hello."), executors={"search": stub(), "pay": stub(fails="tool.fatal")})
    talk.say("One?", TOOLS)
    talk.say("Two?", TOOLS)
    assert talk.heard == ["user One?", "user Two?"]


def test_modified_answer_is_carried_instead_of_the_original() -> None:
    """What a hook made of an answer is what was said; the original does not come back."""
    agent = package(hooks=[script.hook("on_output", id="mask")])
    talk = SessionHome("The secret is 42.", "Yes.", hooks={"mask": hook(lambda question: Modify("***"))})
    talk.say("One?", agent)
    talk.say("Two?", agent)
    assert talk.heard == ["user One?", "assistant ***", "user Two?"]


def test_result_of_a_terminal_tool_is_carried() -> None:
    agent = package(tools={"pay": writing(terminal=True)}, policy={"default": "allow"})
    talk = SessionHome(calls("pay", n=1), text("Bye."))
    talk.say("One?", agent)
    talk.say("Two?", agent)
    assert talk.heard == ["user One?", "assistant  r1.c1.0", "r1.c1.0 paid", "user Two?"]


def test_compacted_history_replaces_earlier_messages() -> None:
    agent = package(
        context={"overflow": "compact", "keep": 1},
        model={"routes": [ROUTE | {"context_window": 400}]},
    )
    talk = SessionHome("x" * 900, "A summary.", "Two.", "Three.")
    talk.say("One?", agent)
    talk.say("Two? " + "y" * 400, agent)
    talk.say("Three?", agent)
    assert not any("One?" in line for line in talk.heard)
    assert any("A summary." in line for line in talk.heard)
    assert talk.heard[-2:] == ["assistant Two.", "user Three?"]


def test_carried_calls_are_renamed_once() -> None:
    talk = SessionHome(calls("search", q="a"), text("One."), text("Two."), text("Three."))
    agent = package(tools={"search": tool()}, policy={"default": "allow"})
    for message in ("One?", "Two?", "Three?"):
        talk.say(message, agent)
    carried = talk.earlier(3).messages
    named = [part.id for message in carried for part in message.parts if isinstance(part, ToolCall)]
    assert named == ["r1.c1.0"]


# --- what is counted ------------------------------------------------------------------------------------------


IN_SESSION = {"repeated_batch": 2, "batch_scope": "session", "repeated_call": None, "cycle": None}


@pytest.mark.parametrize("compare", ["calls", "results"])
def test_repeated_batches_are_counted_across_runs(compare: str) -> None:
    talk = SessionHome(*[calls("search", q="1"), text("Done.")] * 3)
    guards = {**IN_SESSION, "batch_compare": compare}
    agent = package(tools={"search": tool()}, policy={"default": "allow"}, guards=guards)
    assert [_code(talk.say(message, agent)) for message in "abc"] == [None, None, "guard.repeated_batch"]


def test_results_of_batches_are_carried_over_only_if_a_guard_needs_them() -> None:
    """A session of many runs would carry the hash of every result it ever had."""
    for scope, is_carried in (("session", True), ("consecutive", False)):
        talk = SessionHome(*[calls("search", q="1"), text("Done.")] * 2)
        guards = {**IN_SESSION, "batch_scope": scope}
        agent = package(tools={"search": tool()}, policy={"default": "allow"}, guards=guards)
        talk.say("a", agent)
        talk.say("b", agent)
        assert (talk.earlier(2).result_batches is not UNSET) == is_carried


def test_stagnation_is_counted_across_runs() -> None:
    """Words that were not the last of their run: two are allowed in the session."""
    talk = SessionHome(*[reply("Let me look.", call("search", q="1")), text("Done.")] * 3)
    guards = {"stagnation": 2, "repeated_batch": None, "repeated_call": None, "cycle": None}
    agent = package(tools={"search": tool()}, policy={"default": "allow"}, guards=guards)
    assert [_code(talk.say(message, agent)) for message in "abc"] == [None, None, "guard.stagnation"]


def _code(ended: Outcome) -> str | None:
    return ended.code


def test_approval_for_the_session_answers_only_the_same_question() -> None:
    """An approval for the session answers the same question in the next run, and no other one."""
    agent = package(tools={"pay": writing()}, policy={"default": "deny", "rules": [rule("ask", "pay")]})
    person = approving("approved_for_session")
    asks = [calls("pay", n=1), text("Done.")]
    talk = SessionHome(*asks, *asks, calls("pay", n=2), text("Done."), approver=person)
    for message in ("One?", "Two?", "Three?"):
        assert talk.say(message, agent).is_finished
    assert talk.pay.count == 3
    assert [question.value for question in person.questions] == [{"n": 1}, {"n": 2}]


def test_fork_has_its_own_approvals_and_inputs() -> None:
    """The runs of a fork were started in another session."""
    agent = package(tools={"pay": writing()}, policy={"default": "deny", "rules": [rule("ask", "pay")]})
    talk = SessionHome(calls("pay", n=1), text("Done."), approver=approving("approved_for_session"))
    talk.say("One?", agent)
    journals = {"r1": talk.journals.records("r1")}
    for name, is_home in (("s", True), ("fork", False), (None, True)):
        session = restore_session(name, journals)
        earlier = earlier_runs(session, agent, journals.__getitem__)
        assert (bool(earlier.grants), session.has_seen("One?")) == (is_home, is_home), name
        assert (earlier.runs, len(earlier.messages)) == (1, 4), "the history is the same"


def test_each_run_of_a_session_names_its_predecessor() -> None:
    talk = SessionHome("One.", "Two.", "Three.")
    for message in ("One?", "Two?", "Three?"):
        talk.say(message)
    named = [talk.journals.records(f"r{number}")[0].fact.predecessor for number in (1, 2, 3)]  # type: ignore[union-attr]  # run_started
    assert named == [UNSET, "r1", "r2"]
    talk.run(run="alone", message="Hi.")
    assert talk.facts("alone")[0].predecessor is UNSET  # type: ignore[union-attr]  # run_started


def test_run_records_where_each_message_of_its_history_comes_from() -> None:
    talk = SessionHome(calls("search", q="a"), text("One."), "Two.", "Three.")
    for message in ("One?", "Two?", "Three?"):
        talk.say(message, TOOLS)
    assert [talk.earlier(number).origins for number in (1, 2)] == [UNSET, (MessageOrigin("r1", 4),)]
    third = talk.earlier(3)
    assert third.origins == (MessageOrigin("r1", 4), MessageOrigin("r2", 2))
    assert len(third.messages) == 6


@pytest.mark.parametrize(("settings", "origins"), [({"max_runs": 1}, ("r2",)), ({"history": "none"}, ())])
def test_origins_are_those_of_the_carried_history(settings: dict[str, Any], origins: tuple[str, ...]) -> None:
    talk = SessionHome("One.", "Two.", "Three.")
    agent = package(session={"history": "full", **settings})
    for message in ("One?", "Two?", "Three?"):
        talk.say(message, agent)
    found = talk.earlier(3).origins
    assert found is not UNSET
    assert tuple(each.run for each in found) == origins


def test_other_agent_is_refused_unless_any_agent_may_continue() -> None:
    talk = SessionHome("One.", "Two.", "Three.")
    other = package(name="clerk")
    talk.say("One?")
    with pytest.raises(AgentrunError) as caught:
        talk.say("Two?", other)
    error = caught.value
    assert (error.code, error.exit_code, error.fields["expected"], error.fields["actual"]) == (
        *("run.invalid_continuation", 2),
        *("triage", "clerk"),
    )
    assert talk.say("Two?", other, any_agent=True).is_finished
    assert talk.heard == ["user One?", "assistant One.", "user Two?"]
    assert talk.say("Three?").is_finished, "both have runs in it now"
    with pytest.raises(TypeError, match="any_agent"):
        talk.say("Four?", any_agent=1)


# --- one at a time --------------------------------------------------------------------------------------------


def test_run_that_waits_comes_before_the_next_message() -> None:
    talk = SessionHome(calls("pay", n=1), text("Done."), text("Next."))
    waiting = talk.say("One?", ASKING_AGENT)
    assert waiting.status == "suspended"
    with pytest.raises(AgentrunError) as caught:
        talk.say("Two?", ASKING_AGENT)
    assert (caught.value.code, caught.value.exit_code, caught.value.retry) == ("session.unfinished", 8, "user")
    assert caught.value.message == "run r1 of this session waits for an approval of `pay` (c1.0): answer it"
    assert caught.value.fields == {
        "session": "s",
        "run": "r2",
        "blocking_run": "r1",
        "calls": ["c1.0"],
        "input_id": "r2.1",
    }
    assert "r2" not in talk.journals
    handle = talk.runtime.resume("r1")
    handle.answer(waiting.questions[0], "approved", "me")
    assert talk.wait(handle).is_finished
    assert talk.say("Three?", ASKING_AGENT).is_finished


def test_run_that_is_worked_on_makes_its_session_busy() -> None:
    talk = SessionHome("One.", "Two.")
    first = talk.start(message="One?", session="s", run="r1")
    with pytest.raises(AgentrunError) as caught:
        talk.start(message="Two?", session="s", run="r2")
    assert (caught.value.code, caught.value.exit_code, caught.value.retry) == ("session.busy", 9, "retryable")
    assert (caught.value.fields["run"], caught.value.fields["blocking_run"]) == ("r2", "r1")
    talk.wait(first)
    talk.wait(talk.start(message="Two?", session="s", run="r2"))


ASKED_INPUT = package(policy={"rules": [rule("ask", on="input")]})
ANSWER_CALL = "agentrun approve r1 c1.0, or agentrun deny r1 c1.0"


def deferring(**changes: Any) -> Package:
    rules = [rule("defer", "pay", **changes)]
    return package(tools={"pay": writing()}, policy={"default": "deny", "rules": rules})


@pytest.mark.parametrize(
    ("agent", "text", "hint"),
    [
        (ASKING_AGENT, "waits for an approval of `pay` (c1.0): answer it", ANSWER_CALL),
        (
            ASKED_INPUT,
            "waits for an approval of its input: answer it",
            "agentrun approve r1 input, or agentrun deny r1 input",
        ),
        (deferring(wait=7_200_000), "waits, because a rule deferred `pay` (c1.0): resume it", "agentrun resume r1"),
        (deferring(person=True), "waits for an approval of `pay` (c1.0): answer it", ANSWER_CALL),
    ],
    ids=["approval", "input", "deferral", "deferral to a person"],
)
def test_unfinished_run_says_what_it_waits_for(agent: Package, text: str, hint: str) -> None:
    talk = SessionHome(calls("pay", n=1), "Done.")
    assert talk.say("One?", agent).status == "suspended"
    with pytest.raises(AgentrunError) as caught:
        talk.say("Two?", agent)
    assert (caught.value.code, caught.value.message) == ("session.unfinished", f"run r1 of this session {text}")
    assert caught.value.hint == hint


def test_parked_run_is_resumed_first() -> None:
    talk = SessionHome("One.")
    handle = talk.start(message="One?", session="s", run="r1")
    handle.park()
    assert talk.wait(handle).status == "parked"
    with pytest.raises(AgentrunError, match=r"run r1 of this session was interrupted: resume it"):
        talk.start(message="Two?", session="s", run="r2")


def test_run_that_waits_for_its_sub_agent_is_resumed_first() -> None:
    talk = SessionHome(calls("desk", message="Pay."), calls("pay", n=1), "Paid.", "Done.")
    parent = package(tools={"desk": agent_tool()}, agents={"desk": ASKING_AGENT}, policy={"default": "allow"})
    assert talk.say("One?", parent).status == "suspended"
    with pytest.raises(AgentrunError, match=r"waits for the sub-agent `desk` \(c1\.0\): resume it"):
        talk.say("Two?", parent)


def test_unknown_session_is_not_found() -> None:
    home = Home()
    with pytest.raises(AgentrunError) as caught:
        home.start(session="nowhere")
    assert (caught.value.code, caught.value.exit_code) == ("session.not_found", 2)
    assert caught.value.fields["session"] == "nowhere"
    assert home.journals.runs == ()
    home.runtime.sessions.create("somewhere")
    with pytest.raises(AgentrunError, match=r"session\.not_found") as caught:
        home.start(session="somwhere")
    assert caught.value.hint == 'did you mean "somewhere"?'


def test_duplicate_session_name_is_refused() -> None:
    sessions = Sessions()
    sessions.create("s")
    assert ("s" in sessions, "t" in sessions) == (True, False)
    with pytest.raises(AgentrunError) as caught:
        sessions.create("s")
    assert (caught.value.code, caught.value.exit_code) == ("session.duplicate", 2)
    assert caught.value.fields == {"session": "s"}


# --- duplicates -----------------------------------------------------------------------------------------------

ONCE = package(admission={"dedupe": True})


def test_dedupe_refuses_a_repeated_message_in_one_session() -> None:
    talk = SessionHome(scripted(*["Hello."] * 5))
    talk.say("Hi.", ONCE)
    with pytest.raises(AgentrunError) as caught:
        talk.say("  Hi.\n", ONCE)
    assert (caught.value.code, caught.value.fields) == (
        "input.rejected",
        {"reason": "duplicate", "input_id": "r2.1", "run": "r2"},
    )
    assert "r2" not in talk.journals
    talk.say("Hi!", ONCE)
    talk.runtime.sessions.create("other")
    assert talk.run(ONCE, session="other", run="o").is_finished, "another session"
    assert talk.run(ONCE, run="p").is_finished, "no session"
    assert talk.say("Hi.", package()).is_finished, "off by default"


def test_goes_on_continues_the_session_after_a_failed_run() -> None:
    """The last run failed before it answered: the next one goes on without a new message."""
    talk = SessionHome(fails("provider.fatal"), text("Here I am."))
    talk.say("Hello?")
    outcome = talk.say(None, goes_on=True)
    assert (outcome.answer, talk.heard) == ("Here I am.", ["user Hello?"])
    with pytest.raises(AgentrunError) as caught:
        talk.say(None, goes_on=True)
    assert caught.value.code == "run.invalid_continuation"


# --- what is read ----------------------------------------------------------------------------------------------


LAST_READ = [
    ({"history": "full"}, ()),
    ({"history": "full"}, ("r1",)),
    ({"history": "full"}, ("r3",)),
    ({"history": "full", "max_runs": 2}, ()),
    ({"history": "full", "max_runs": 2}, ("r3",)),
    ({"history": "answers"}, ("r2",)),
    ({"history": "answers", "max_runs": 3}, ()),
    ({"history": "none"}, ()),
]


@pytest.mark.parametrize(("settings", "removed"), LAST_READ)
def test_history_of_the_last_run_is_that_of_all_runs(settings: dict[str, Any], removed: tuple[str, ...]) -> None:
    """A run with the package of the last one reads only the last one, unless a run of the history was removed."""
    agent = package(tools={"search": tool()}, policy={"default": "allow"}, session=settings)
    talk = SessionHome("One.", calls("search", q="b"), text("Two."), text("Three."), text("Four."))
    for message in ("One?", "Two?", "Three?", "Four?"):
        talk.say(message, agent)
    journals = {run: talk.journals.records(run) for run in ("r1", "r2", "r3", "r4") if run not in removed}
    session, read = restore_session("s", journals), []

    def note(run: str) -> Any:
        read.append(run)
        return journals[run]

    mine = fingerprint(agent)
    assert earlier_runs(session, agent, note, mine) == earlier_runs(session, agent, journals.__getitem__)
    carried = {each.run for each in talk.earlier(4).origins or ()}
    assert ({*read} == {"r4"}) is not bool(carried & {*removed})


def test_message_of_a_session_reads_one_journal_however_many_there_are() -> None:
    count = 200
    talk = SessionHome(*["Yes."] * count)
    reads: list[str] = []

    class Counting(MemoryJournals):
        def records(self, run: str) -> Any:
            reads.append(run)
            return super().records(run)

    talk.runtime.journals = journals = Counting()
    for number in range(count):
        before = len(reads)
        file = seal_package(package())
        request = Request(agent="triage", package=file, message=f"{number}?", session="s", run=f"r{number}")
        handle = talk.runtime.start(request)
        assert {*reads[before:]} <= {f"r{number - 1}", f"r{number}"}
        talk.wait(handle)
    assert len(journals.records(f"r{count - 1}")[0].fact.earlier.messages) == 2 * (count - 1)
