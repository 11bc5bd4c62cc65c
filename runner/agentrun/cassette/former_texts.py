"""Former wordings of `core/model_texts.py`. They explain why a cassette of an older version no longer matches.

Rule 1  Only texts that a replay makes again are listed. Results of Python tools, commands and MCP servers are recorded,
        so a replay reads their former wording from the cassette.
Rule 2  Entries are applied from top to bottom. When a text changes again, add an entry at the end. Old ones stay.
"""

from __future__ import annotations

import re
from functools import cache

TEXTS_CHANGED_IN = "0.1.0"
"""The version of agentrun that changed a text last."""
MAX_UPDATED_LENGTH = 20_000
FORMER_TEXTS = r"""
# messages to the model
\b(\d+) turns are left\. Wrap up: use (what you have and give your) answer\.
    You have \1 turns left. Use \2 final answer now.
\bYou have 1 turns left
    You have 1 turn left
\bGo on exactly where it stopped, without repeating anything\.
    Continue exactly where it stopped and do not repeat anything.
^Your answer does not keep its contract:\n
    Your answer does not match the required format:\n
\nAnswer again with the corrected JSON and nothing else\.$
    \nSend the corrected JSON and nothing else.
# JSON
\bthe (?:answer|text) has (\d+) bytes; (\d+) are allowed
    it has \1 bytes, but the limit is \2
\bthe (?:answer|text) is nested deeper than
    it is nested deeper than
\bthe (?:answer|text) is not JSON:
    it is not valid JSON:
\ban object has two keys of the same name
    an object has the same key twice
(?m)^- answer:
    - the answer:
# refused calls
(there is no tool '[^']*'); tools:
    \1; available tools:
('[^']*' has no such action); actions:
    \1; available actions:
\bthe arguments of ([^' ]+) are not valid:
    the arguments of '\1' are not valid:
\btool\.missing_field: ([^' ]+) needs '
    tool.missing_field: '\1' needs the argument '
('[^']*') would be nested deeper than (\d+) agents
    \1 cannot be called: the nesting limit for sub-agents is \2
('[^']*') would be one more than the (\d+) agents that may be started
    \1 cannot be called: the limit for started sub-agents is \2
\ba reply may ask for (\d+) calls at most, this one asks for (\d+)
    this reply contains \2 tool calls, but the limit is \1
# denials
\bthe hook (\S+) denies (\S+): the hook \1 failed
    the hook \1 denied \2: the hook failed
\bthe hook (\S+) denies
    the hook \1 denied
\bthe policy \(([^),]+)\)
    the policy rule \1
\bthe policy \(([^)]+)\)
    the policy rules \1
\b(the policy rules? .+?) denies
    \1 denied
\b(the policy rules? .+?) stops the run over
    \1 stopped the run because of
\bthe policy's default denies ([\w.-]+)
    the policy denied \1 by default
: a person denied ([\w.-]+)
    : \1 was not approved: the request was denied
: nobody answered in time about ([\w.-]+)
    : \1 was not approved: the request was not answered in time
: the question was taken back about ([\w.-]+)
    : \1 was not approved: the request was cancelled
: nobody can be asked about ([\w.-]+)
    : \1 was not approved: no approver is available
\bcannot be evaluated: it is neither true nor false
    cannot be evaluated: its result is neither true nor false
: two rules set
    : two rules set the argument
\btool\.aborted: the run ended before this call did$
    tool.aborted: the run ended before this call finished
# sub-agents
^tool\.execution: agent failed: (budget|guard|context|output|policy|approval|tool)\.
    tool.execution: the sub-agent failed: \1.
(?s)^tool\.execution: agent failed: ([\w.]+): .*
    tool.execution: the sub-agent failed: \1
\bthe agent took longer than (\d+) ms
    the sub-agent took longer than \1 ms
\bthe message has (\d+) characters; (\d+) are allowed
    the message has \1 characters, but the limit is \2
# the end of a run
\bthe next call may (?:take|cost) \d+ ([\w-]+), and 0 of (\d+) are left
    the budget of \2 \1 is used up
\bthe next call may (?:take|cost) (\d+ [\w-]+), and (\d+ of \d+) are left
    the next step may need \1, but the budget has only \2 left
\b\d+ calls want to run, and 0 of (\d+) are left
    the budget of \1 tool calls is used up
\b(\d+) calls want to run, and (\d+ of \d+) are left
    the next step may need \1 tool calls, but the budget has only \2 left
\bthe run has (?:taken all of|used) its (\d+ \w+)
    the budget of \1 is used up
\bthe reply asks for (\d+) calls at once; (\d+) are allowed
    the reply asks for \1 tool calls at once, but the limit is \2
\bis called (\d+ times in a row with)
    was called \1
\bis gone through (\d+ times in a row)
    was repeated \1
\bthe same calls are asked for the (\d+)\. time; (\d+) are allowed
    the model asked for the same tool calls \1 times, but the limit is \2
\bthe assistant says the same text the (\d+)\. time; (\d+) are allowed
    the model wrote the same text \1 times, but the limit is \2
\b(the request has an estimated \d+ tokens), and the model reads
    \1, but the context window of the model has
\bthere is nothing in the history that could be summed up
    the conversation has nothing that could be summarized
\b(\d+ summaries in a row) gave nothing usable
    \1 were not usable
\bthe answer breaks its contract after (\d+ repairs):
    the answer is not valid after \1:
\b(after|called|budget of|may need|repeated|stopped) 1 (repair|time|turn|token|tool call)s\b
    \1 1 \2
# HTTP tools
\[([\d,]+) bytes that are no text: of (?:no type that is named|an odd type)\]
    [\1 bytes that are not text; content type: unknown]
\[([\d,]+) bytes that are no text:
    [\1 bytes that are not text; content type:
\b(the call took longer than \d+ ms)(?! and)
    \1 and was stopped
\bthe reply is not one that the expression fits
    the expression does not fit the reply
\ba value for the address's path holds a
    a value for the path of the address contains a
\ba part of the address's path would be empty, or a dot
    a part of the path of the address would be empty, `.` or `..`
\bredirects to something that is no whole http
    redirects to something that is not a complete http
\[1 bytes that are not text;
    [1 byte that is not text;
# messages of a provider
\bYour final answer is (one JSON value and nothing else), no text or code fence around it\. It keeps this schema:
    Your final answer must be \1: no other text and no code fence. It must match this schema:
^What the agent is to do\.$
    The task for the sub-agent.
^It is shown below\.$
    The result is attached below.
"""
"""A pattern (regular expression), and in the next line its replacement."""
_JSON_WORDS = re.compile(r"\b(true|false|null)\b")
_EMPTY_LINES = re.compile(r"[ \t]*\n\s*")
PRINTED_AS_JSON = (
    f"templates print True, False and None since version {TEXTS_CHANGED_IN}, where they printed true, false and null,"
    " and nothing else differs"
)
TAGS_WITHOUT_LINES = (
    f"templates print as Jinja does since version {TEXTS_CHANGED_IN}: True, False and None, and an empty line for a tag"
    " alone on its line; nothing else differs"
)


def update_texts(text: str) -> str:
    """The text with former wordings replaced by those of today. A text that is too long for one stays as it is."""
    if len(text) > MAX_UPDATED_LENGTH:
        return text
    for pattern, new in _patterns():
        text = pattern.sub(new, text)
    return text


def update_json_words(text: str) -> str:
    """The text as it is if templates print booleans and null as Jinja does."""
    return _JSON_WORDS.sub(lambda found: {"true": "True", "false": "False", "null": "None"}[found[1]], text)


def without_empty_lines(text: str) -> str:
    """The text with those words, and without what a tag alone on its line leaves."""
    return _EMPTY_LINES.sub("\n", update_json_words(text)).strip()


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    lines = [line for line in FORMER_TEXTS.splitlines() if line and not line.startswith("#")]
    return [(re.compile(old), new.removeprefix("    ")) for old, new in zip(lines[::2], lines[1::2], strict=True)]
