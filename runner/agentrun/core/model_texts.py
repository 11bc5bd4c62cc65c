"""Every text of the runtime that a model reads, or that is part of a request which a cassette must match.

Constants with `{}` are templates for `str.format`. Texts of faults are without their code, see `with_code`.

Rule 1  Changing a line here invalidates recorded cassettes: the next request differs from the recorded one.
        `tests/golden/model_texts.txt` freezes every text. If you change one, add the former wording to
        `cassette/former_texts.py`, so that the miss on an old cassette is explained, and run `make cassettes`.
Rule 2  A detail after a colon may be quoted from elsewhere (a library, a server, a tool) and is not frozen.
Rule 3  The prompts that a spec can set (`guards.nudge`, `context.compaction.prompt`) are in `spec/v1/budgets.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_NAMED_TOOLS = 100


def with_code(code: str, message: str) -> str:
    return f"{code}: {message}"


def _count(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`, `2 ms`."""
    return f"{number} {noun}" if number == 1 or noun == "ms" else f"{number} {noun}s"


# --- messages of the runtime to the model ---

CONTINUE = "Your reply was cut off. Continue exactly where it stopped and do not repeat anything."
SUMMARY_PREFIX = "Summary of the conversation so far:\n\n"
SCHEMA_GUIDANCE = (
    "Your final answer must be one JSON value and nothing else: no other text and no code fence."
    " It must match this schema:\n"
)


def wrap_up(turns: int) -> str:
    return f"You have {_count(turns, 'turn')} left. Use what you have and give your final answer now."


def repair(errors: Iterable[str]) -> str:
    lines = "\n".join(f"- {error}" for error in errors)
    return f"Your answer does not match the required format:\n{lines}\nSend the corrected JSON and nothing else."


# --- what is wrong with an answer or with the arguments of a call ---

NOT_AN_OBJECT = "it is not an object"
DUPLICATE_KEY = "an object has the same key twice"
MORE_ERRORS = "there are more errors"
JSON_TOO_LARGE = "it has {} bytes, but the limit is {}"
JSON_TOO_DEEP = "it is nested deeper than {} levels"
JSON_INVALID = "it is not valid JSON: {}"


def schema_error(pointer: str, error: str) -> str:
    return f"{pointer or 'the answer'}: {error}"


# --- calls that are refused before anything is asked ---

HIDDEN_TOOL = "the tool {!r} is not available now"
ARGUMENTS_NOT_AN_OBJECT = "the arguments of {!r} are not a JSON object: {}"
MISSING_ARGUMENT = "{!r} needs the argument {!r}"
NESTED_TOO_DEEP = "{!r} cannot be called: the nesting limit for sub-agents is {}"
TOO_MANY_RUNS = "{!r} cannot be called: the limit for started sub-agents is {}"


def unknown_tool(name: str, tools: Sequence[str]) -> str:
    more = f" and {len(tools) - MAX_NAMED_TOOLS} more" if len(tools) > MAX_NAMED_TOOLS else ""
    return f"there is no tool {name!r}; available tools: {', '.join(tools[:MAX_NAMED_TOOLS]) or 'none'}{more}"


def invalid_arguments(name: str, place: str, error: str) -> str:
    return f"the arguments of {name!r} are not valid: {place or 'the arguments'}: {error}"


def unknown_action(name: str, actions: Iterable[str]) -> str:
    return f"{name!r} has no such action; available actions: {', '.join(sorted(actions))}"


def too_many_calls(count: int, limit: int) -> str:
    return f"this reply contains {_count(count, 'tool call')}, but the limit is {limit}"


# --- calls that are denied, and why: also what a person is asked ---

DENIED_BY_HOOK = "the hook {} denied {}: {}"
HOOK_FAILED = "the hook failed"
START_DENIED = "the policy does not allow the run to start (ruling: {})"
CONDITION_FAILED = "the condition of {} cannot be evaluated: {}"
CONDITION_NOT_BOOLEAN = "its result is neither true nor false"
CONDITION_TOO_LARGE = "+ in all, exists, map or filter could build more than {} MiB of these values"
ARGUMENT_SET_TWICE = "two rules set the argument {}"


def denied_by_policy(rules: Sequence[str], target: str, reason: str | None, *, stops: bool) -> str:
    by = f" rule{'s' * (len(rules) > 1)} {', '.join(rules)}" if rules else ""
    does = f"stopped the run because of {target}" if stops else f"denied {target}"
    return f"the policy{by} {does}{'' if rules else ' by default'}{f': {reason}' if reason else ''}"


def not_approved(answer: str | None, target: str, reason: str | None = None) -> str:
    reasons = {
        "denied": "the request was denied",
        "timed_out": "the request was not answered in time",
        "cancelled": "the request was cancelled",
    }
    because = f": {reason}" if reason else ""
    return f"{target} was not approved: {reasons.get(answer or '', 'no approver is available')}{because}"


# --- calls that were given up, and calls whose outcome is not known ---

RUN_ENDED = "the run ended before this call finished"
CALL_UNNECESSARY = "{} made this call unnecessary"
OUTCOME_UNKNOWN = "it is not known whether the call of {} took effect"


# --- results of all tools ---

INVALID_RESULT = "the tool returned something that is not a result"
RESULT_NOT_TEXT = "the result contains half of a surrogate pair, which is not valid text"
RESULT_TOO_DEEP = "the result cannot be written as JSON: it contains itself or is nested too deeply"
EXCEPTION_WITHOUT_TEXT = "the exception has no readable message"
OMITTED = "[… {} of {} bytes left out …]"
TIMED_OUT = "the call took longer than {} ms and was stopped"
RESULT_TOO_LARGE = "the result has {:,} bytes; the limit is {:,}"
RESULT_NOT_JSON = "the result cannot be written as JSON: {}"


# --- sub-agents ---

CHILD_MESSAGE = "The task for the sub-agent."
MESSAGE_EMPTY = "there is no message to send"
CHILD_TIMED_OUT = "the sub-agent took longer than {} ms and was stopped"


def child_failed_text(code: str, message: str) -> str:
    """What the network, a provider or the disk reported is left out: it may name addresses, which differ by machine."""
    is_ours = code.partition(".")[0] in ("budget", "guard", "context", "output", "policy", "approval", "tool")
    return f"the sub-agent failed: {with_code(code, message) if is_ours else code}"


def message_too_long(size: int, limit: int) -> str:
    return f"the message has {_count(size, 'character')}, but the limit is {limit}"


# --- why a run ended: the model of its parent reads this ---

NOTHING_TO_SUMMARIZE = "the conversation has nothing that could be summarized"


def budget_used_up(unit: str, reserved: int, left: int, limit: int) -> str:
    if left <= 0:
        return f"the budget of {_count(limit, unit)} is used up"
    return f"the next step may need {_count(reserved, unit)}, but the budget has only {left} of {limit} left"


def context_too_large(size: int, window: int | None) -> str:
    return f"the request has an estimated {_count(size, 'token')}, but the context window of the model has {window}"


def summaries_failed(count: int) -> str:
    return f"{count} summaries in a row were not usable" if count > 1 else "the summary was not usable"


def answer_invalid(repairs: int, error: str) -> str:
    return f"the answer is not valid after {_count(repairs, 'repair')}: {error}"


def parallel_calls(count: int, limit: int) -> str:
    return f"the reply asks for {_count(count, 'tool call')} at once, but the limit is {limit}"


def repeated_call(tool: str, count: int) -> str:
    return f"{tool} was called {_count(count, 'time')} in a row with the same arguments"


def repeated_cycle(tools: Iterable[str], count: int) -> str:
    return f"{' → '.join(tools)} was repeated {_count(count, 'time')} in a row"


def repeated_batch(count: int, limit: int) -> str:
    return f"the model asked for the same tool calls {_count(count, 'time')}, but the limit is {limit}"


def repeated_text(count: int, limit: int) -> str:
    return f"the model wrote the same text {_count(count, 'time')}, but the limit is {limit}"


def stopped_without_call(count: int) -> str:
    return f"the model stopped {_count(count, 'time')} without calling a tool"


# --- messages of a provider ---

ATTACHED_BELOW = "The result is attached below."
ATTACHED_FROM = "From the result of {}:"
MODEL_DECLINED = "The model declined to answer."
PROVIDER_BLOCKED = "The provider blocked this: {}."


# --- HTTP tools ---

NOT_JSON_REPLY = "the reply is not JSON"
REDIRECT_UNUSABLE = "the endpoint redirects to something that is not a complete http or https address"
BODY_UNUSABLE = "the body cannot be written: it contains a value that JSON does not have"
URL_NOT_TEXT = "a value for the address contains half of a surrogate pair, which is not valid text"
URL_EMPTY_SEGMENT = "a part of the path of the address would be empty, `.` or `..`"
URL_SLASH = "a value for the path of the address contains a slash"
URL_CONTROL = "a value for the path of the address contains a control character"
RESULT_TOO_MUCH_WORK = "picking the result out of the reply takes too much work"
URL_TOO_LONG = "the address has more than {:,} characters"
HTTP_OUTCOME_UNKNOWN = "the request was sent, but it is not known whether it took effect: {}"
TOO_MANY_REDIRECTS = "the endpoint redirects more than {} times"
TEMPLATE_FAILED = "a template cannot be filled in: {}"
HEADER_RESERVED = "the header {} is set by the request itself"
HEADER_UNUSABLE = "a value for the header {} contains a line break or another character that no header may have"
HEADER_NAMES_VARIABLE = "a value for the header {} names an environment variable, which only the spec may do"
HTTP_FAILED = "the endpoint answered with status {}"
HTTP_NO_BODY = "status {}, no body"


def result_expression_failed(error: str | None) -> str:
    return f"the expression does not fit the reply{f': {error}' if error else ''}"


def http_status(status: int, location: str = "") -> str:
    return f"status {status}{f', location: {location}' if location else ''}"


def binary_body(size: int, media_type: str | None) -> str:
    what = "1 byte that is" if size == 1 else f"{size:,} bytes that are"
    return f"[{what} not text; content type: {media_type or 'unknown'}]"


# --- Python tools ---

PROCESS_INVALID_RESULT = "the process of the tool wrote something that is not a result"
PROCESS_KILLED = "the process of the tool was killed"
IMPORT_FAILED = "{} cannot be imported: "
FUNCTION_MISSING = "the module {} has no function {} after it was imported"
PROCESS_NOT_STARTED = "the process of the tool cannot be started: {}"
PROCESS_RESULT_TOO_LARGE = "the process of the tool returned more than {:,} bytes"
PROCESS_KILLED_BY = "the process of the tool was killed by {}"
PROCESS_EXITED = "the process of the tool ended with exit code {} and without a result"


# --- commands ---

STDERR = "[stderr]"
COMMAND_NUL = "the command was not run: an argument contains a NUL character"
COMMAND_TOO_LONG = "the command was not run: its arguments are longer than this system allows"
NOT_A_PROGRAM = "it is neither a program for this machine nor a script that begins with #!"
INTERPRETER_MISSING = "the program named in its first line does not exist"
OUTPUT_TOO_LARGE = "the command wrote more than {:,} bytes and was stopped"
FOLDER_UNUSABLE = "the command was not run: {} is not a folder of the project, or is reached through a link"
COMMAND_NOT_RUN = "the command {} was not run: {}"
ARGUMENT_NUL = "{} would contain a NUL character, which no command accepts"
ARGUMENT_DASH = "{} would begin with a dash and be read as an option"
ARGUMENT_NOT_TEXT = "{} would contain half of a surrogate pair, which is not valid text"
ARGUMENT_TEMPLATE_FAILED = "{} cannot be filled in: {}"


def output_omitted(size: int) -> str:
    return f"[… {size:,} byte{'s' * (size != 1)} left out …]"


def exit_status(code: int | None, signal: str | None) -> str:
    if code is not None:
        return f"exit code {code}"
    return f"killed by {signal}" if signal is not None else "exit status not known"


def command_failed(code: int | None, signal: str | None) -> str:
    if code is None and signal is None:
        return "the command killed the process that supervised it, and was killed"
    return f"the command {'was' if code is None else 'ended with'} {exit_status(code, signal)}"


# --- MCP servers ---

MCP_ENDED = "it was stopped"
MCP_CONNECTION_LOST = "the connection was lost"
MCP_SESSION_OVER = "its session is over"
MCP_TOOL_FAILED = "the tool failed"
MCP_BAD_REPLY = "the reply does not follow the protocol"
MCP_LISTS_NO_TOOLS = "it does not list its tools any more"
MCP_BAD_HEADER = "a header has characters that no header may have"
MCP_NOT_STARTABLE = "it cannot be started: its command or a variable contains a character that no program accepts"
MCP_NO_REPLY = "no reply arrived in time"
MCP_COMPRESSED = "its reply is compressed although that was not requested"
MCP_REDIRECTS = "it redirects to another address"
MCP_REPLY_ENDED = "its reply ended too early"
MCP_REPLY_STOPPED = "its reply stopped in the middle"
MCP_TOO_MANY_REQUESTS = "it sends too many requests to its client"
MCP_OUTPUT_CLOSED = "it closed its output"
MCP_UNKNOWN_CONTENT = "[content of an unknown kind]"
MCP_NOT_STARTED = "the server did not start: {}"
MCP_UNUSABLE = "the server cannot be used: {}"
MCP_LOST = "the server was lost during the call: {}"
MCP_STARTED_TOO_OFTEN = "it was started {} times, which is the limit"
MCP_SILENT = "it did not answer within {} ms"
MCP_BAD_START = "it did not start as the protocol requires: {}"
MCP_CANNOT_START = "it cannot be started: {}"
MCP_CONNECTION_FAILED = "the connection failed: {}"
MCP_LISTED_TWICE = "it lists the tool {!r} twice"
MCP_TOO_MANY_TOOLS = "it lists more than {:,} tools"
MCP_TOO_MANY_PAGES = "its list of tools has more than {:,} pages"
MCP_STATUS = "it answered with status {}"
MCP_REPLY_TOO_LARGE = "its reply is larger than {:,} bytes"
MCP_NOT_A_MESSAGE = "it wrote something that is not a message: {}"
MCP_LINE_TOO_LONG = "it wrote a line of more than {:,} bytes"
MCP_LINK = "[link to {}: {}]"
MCP_RESOURCE = "[resource {}]"


def mcp_exited(code: int | None, signal: int | None) -> str:
    if signal is not None:
        return f"it was killed by signal {signal}"
    return "it ended" if code is None else f"it ended with exit code {code}"


def mcp_attachment(kind: str, media_type: str | None, size: int) -> str:
    return f"[{kind}, {media_type or 'unknown type'}, {size:,} byte{'s' * (size != 1)}: not shown]"
