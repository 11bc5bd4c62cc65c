"""The contract of every error code, and the codes that the core does not produce."""

from typing import NamedTuple

CONTRACT = """
spec                                                            | place pointer       | H | 2
package.invalid package.fingerprint_mismatch                    | place pointer       | H | 2
host.missing                                                    | name                | H | 2
provider.not_found                                              | provider            | H | 2
provider.transient provider.timeout provider.overloaded         | status attempts     | R | 6
provider.rate_limited                                           | retry_after attempts| R | 6
provider.zero_output provider.empty                             |                     | R | 6
provider.decode                                                 | offset              | N | 6
provider.fatal                                                  | status              | U | 6
provider.context_overflow                                       |                     | P | 6
provider.inconsistent_history                                   | calls               | P | 6
context.overflow                                                | context estimated   | P | 5
context.failed                                                  | part reason         | P | 7
budget.turns budget.tokens budget.cost                          | used reserved limit | U | 5
budget.time budget.tool_calls                                   | used reserved limit | U | 5
guard.parallel_tools                                            | count limit         | N | 5
guard.repeated_call guard.cycle                                 | pattern count limit | N | 5
guard.repeated_batch                                            | signature count limit | N | 5
guard.stagnation                                                | hash count limit    | N | 5
guard.empty_outcome                                             | observed budget     | N | 5
tool.unknown tool.hidden                                        | tool                | - | -
tool.invalid_arguments                                          | tool field          | - | -
tool.missing_field                                              | tool action field   | - | -
tool.invalid_call                                               | tool                | - | -
tool.execution tool.timeout tool.denied                         | tool                | - | 4
tool.fatal tool.aborted                                         | tool reason         | N | 6
tool.indeterminate                                              | call                | U | 8
tool.drift                                                      | tool pinned found   | U | 6
policy.denied policy.interrupted                                | rules               | U | 4
approval.denied approval.timed_out                              | call by             | U | 4
approval.unavailable approval.cancelled                         | call by             | U | 4
input.rejected                                                  | input_id reason     | U | 2
input.admission_failed                                          | input_id reason     | P | 2
session.not_found                                               | session             | U | 2
session.busy                                                    | session             | R | 9
session.duplicate                                               | session             | N | 2
session.unfinished                                              | session run         | U | 8
run.not_found                                                   | run                 | P | 2
cursor.scope                                                    | cursor scope        | P | 2
cursor.invalid                                                  | cursor              | P | 2
run.duplicate                                                   | run                 | N | 2
run.invalid_state run.invalid_continuation                      | expected actual     | P | 2
recovery.failed                                                 | seq                 | P | 7
journal.damaged journal.truncated                               | seq                 | P | 7
journal.poisoned journal.stale_owner                            | seq                 | P | 7
storage.failed                                                  | path errno          | H | 7
storage.untrusted                                               | reason              | H | 7
audit.diverged                                                  | seq was is          | P | 1
output.invalid                                                  | errors              | N | 6
delivery.failed                                                 | sink                | R | 6
cassette.miss cassette.damaged cassette.unused                  | turn nearest difference | U | 3
cancelled                                                       | by                  | N | 130
internal                                                        |                     | P | 70
"""
"""Code, fields, class and exit code, as the contract has them. `-`: the code never ends a run like that."""

LETTERS = {"R": "retryable", "N": "not_retryable", "P": "repair", "U": "user", "H": "host", "-": None}


class CodeContract(NamedTuple):
    """What the contract says of a code."""

    fields: tuple[str, ...]
    retry: str | None
    exit: int | None


def _meanings() -> dict[str, CodeContract]:
    rows = [[cell.strip() for cell in line.split("|")] for line in CONTRACT.strip().splitlines()]
    return {
        code: CodeContract(tuple(fields.split()), LETTERS[letter], None if exit == "-" else int(exit))
        for codes, fields, letter, exit in rows
        for code in codes.split()
    }


MEANINGS = _meanings()

CODES_OF_OTHER_LAYERS = {
    "spec": "spec and compiler: what people wrote is wrong",
    "package.fingerprint_mismatch": "compiler and engine: a package is loaded, a run starts",
    "host.missing": "engine: ports, executors, hooks and sinks are looked for before the run exists",
    "provider.not_found": "engine: routes are looked up before the run exists",
    "input.rejected": "engine: admission, before the run exists",
    "input.admission_failed": "engine: admission, before the run exists",
    "session.not_found": "engine: sessions",
    "session.busy": "engine: sessions",
    "session.duplicate": "engine and store: sessions",
    "session.unfinished": "engine: sessions",
    "run.not_found": "engine: the runtime object",
    "cursor.scope": "engine: subscriptions",
    "cursor.invalid": "engine: the text of a cursor",
    "run.duplicate": "engine: the runtime object",
    "run.invalid_state": "engine: the runtime object",
    "run.invalid_continuation": "engine: the runtime object",
    "journal.damaged": "journal: reading",
    "journal.truncated": "journal: reading",
    "journal.poisoned": "journal: writing",
    "journal.stale_owner": "journal: writing",
    "storage.failed": "journal and cassette: files",
    "storage.untrusted": "store: whose it is",
    "audit.diverged": "command line: the core gives a Divergence, the command makes an error of it",
    "cassette.miss": "cassette: replay",
    "cassette.damaged": "cassette: reading",
    "cassette.unused": "cassette: replay",
}
"""Codes that the core cannot produce, and the part that does."""
