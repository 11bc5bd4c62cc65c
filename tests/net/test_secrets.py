"""No error, log or traceback shows the credentials of a request."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator

import pytest

from agentrun.errors import HostError
from agentrun.net.client import HttpxSender
from agentrun.net.environment import Lookup, request_variables
from agentrun.secret import Secret
from agentrun.wire import HttpAuth, HttpCall, HttpReply

from ..hand_loop import HandLoop, run_by_hand
from ..servers import CLOSE, RESET, Drip, Plan, Server, Wait, chunk, closed_port, head, streamed
from .http_requests import GOOD, PATIENCE, open_sender, secret_lookup

CANARIES = {"KEY": "canary-in-the-key", "TEAM": "canary-in-a-header", "PART": "canary-in-the-address"}
AUTH = HttpAuth("x-api-key", "", "KEY")


def request_to(url: str) -> HttpCall:
    return HttpCall("POST", url + "/${PART}?key=${PART}", (("x-team", "${TEAM}"),), b"{}", AUTH)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """All that any library says, at the lowest level."""
    with caplog.at_level(logging.DEBUG):
        for name in ("httpx", "httpcore", "httpcore.http11", "httpcore.connection", "asyncio"):
            logging.getLogger(name).setLevel(logging.DEBUG)
        yield lambda: "\n".join(f"{record.getMessage()} {record.args}" for record in caplog.records)


def traceback_with_locals(error: BaseException) -> str:
    """An error as the most talkative of tools shows it."""
    lines = list(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    return "\n".join([*lines, repr(error), str(error), str(vars(error)), str(error.__context__)])


def leaked_values(text: str) -> list[str]:
    return [value for value in CANARIES.values() if value in text]


async def error_of_one(lookup: Lookup, call: HttpCall, heard: Callable[[bytes], None] | None = None) -> BaseException:
    async with open_sender(lookup) as sender:
        return await error_of_send(sender, call, heard)


async def error_of_send(
    sender: HttpxSender, call: HttpCall, heard: Callable[[bytes], None] | None = None
) -> BaseException:
    try:
        await sender.send(call, gap=PATIENCE, time=PATIENCE, heard=heard)
    except BaseException as error:  # noqa: BLE001  # whatever it is
        return error
    raise AssertionError("nothing was raised")


def error_of(call: HttpCall, heard: Callable[[bytes], None] | None = None) -> BaseException:
    return asyncio.run(error_of_one(secret_lookup(**CANARIES), call, heard))


PLANS: list[Plan] = [
    [RESET],
    [CLOSE],
    [b"rubbish\r\n\r\n"],
    [head(200, ("Content-Length", "9")) + b"abc", CLOSE],
    [head(200, ("Content-Length", "9")) + b"abc", RESET],
    [head(200, ("Content-Encoding", "br"))],
    [head(200, ("X-Echo", CANARIES["KEY"]), ("Content-Length", "9")), CLOSE],
]
ENDLESS: list[Plan] = [[Wait(90)], streamed(b"a", Drip(chunk(b":"), 0.05))]


@pytest.mark.parametrize("plan", [*PLANS, *ENDLESS])
def test_failed_request_shows_no_credential(plan: Plan, logged: Callable[[], str]) -> None:
    async def main(loop: HandLoop) -> BaseException:
        task = asyncio.ensure_future(error_of_one(secret_lookup(**CANARIES), request_to(server.url)))
        await asyncio.to_thread(server.wait)
        if plan in ENDLESS:
            loop.advance(PATIENCE / 1000)
        return await task

    with Server(plan) as server:
        error = run_by_hand(main)
    assert server.requests[0].headers["x-api-key"] == CANARIES["KEY"], "it was sent"
    assert leaked_values(traceback_with_locals(error)) == []
    assert error.__context__ is None
    assert leaked_values("" if "X-Echo" in str(plan) else logged()) == []


@pytest.mark.parametrize("scheme", ["http", "https", "ftp"])
def test_refused_connection_shows_no_credential(scheme: str, logged: Callable[[], str]) -> None:
    error = error_of(request_to(f"{scheme}://127.0.0.1:{closed_port()}"))
    assert leaked_values(traceback_with_locals(error) + logged()) == []


def test_value_that_does_not_fit_in_a_header_is_not_shown(logged: Callable[[], str]) -> None:
    """The HTTP library quotes it in its error."""
    for value in (CANARIES["KEY"] + "\r\n", CANARIES["KEY"] + "\u20ac"):
        with Server(GOOD) as server:
            lookup = secret_lookup(**{**CANARIES, "KEY": value})
            error = asyncio.run(error_of_one(lookup, request_to(server.url)))
        assert leaked_values(traceback_with_locals(error) + logged()) == []


def test_cancelled_request_shows_no_credential() -> None:
    async def stopped() -> BaseException:
        async with open_sender(secret_lookup(**CANARIES)) as sender:
            task = asyncio.ensure_future(sender.send(request_to(server.url), gap=PATIENCE, time=PATIENCE))
            await asyncio.to_thread(server.wait)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError as error:
                return error
        raise AssertionError

    with Server([Wait(90)]) as server:
        assert leaked_values(traceback_with_locals(asyncio.run(stopped()))) == []


def test_interrupted_request_shows_no_credential() -> None:
    def interrupt(data: bytes) -> None:
        raise KeyboardInterrupt

    with Server(streamed(b"a", Wait(90))) as server:
        error = error_of(request_to(server.url), interrupt)
    assert isinstance(error, KeyboardInterrupt)
    assert leaked_values(traceback_with_locals(error)) == []


def test_missing_variable_error_shows_no_credential() -> None:
    def lookup(name: str) -> Secret:
        if name == "KEY":
            raise HostError("host.missing", "KEY is not set", fields={"name": "KEY"}, hint="set it")
        return secret_lookup(**CANARIES)(name)

    error = asyncio.run(error_of_one(lookup, request_to("http://127.0.0.1:1")))
    assert isinstance(error, HostError)
    assert (error.code, error.fields, error.hint) == ("host.missing", {"name": "KEY"}, "set it")
    assert leaked_values(traceback_with_locals(error)) == []


@pytest.mark.parametrize("status", [200, 401])
def test_credentials_repeated_in_an_error_reply_are_masked(status: int) -> None:
    """Some quote the key that they refuse. A good reply is the model's, and stays as it is."""
    words = " and ".join(CANARIES.values())
    reply = HttpReply(status, (("X-Echo", CANARIES["KEY"]),), words.encode())

    async def one() -> HttpReply:
        async with open_sender(secret_lookup(**CANARIES)) as sender:
            return await sender.send(request_to(server.url), gap=PATIENCE, time=PATIENCE)

    with Server(reply) as server:
        got = asyncio.run(one())
    if status == 200:
        assert got.body == words.encode()
    else:
        assert got.body == b"*** and *** and ***"
        assert got.headers[0] == ("x-echo", "***")


def test_short_values_are_not_hidden() -> None:
    """They would make holes in every text."""

    async def one() -> HttpReply:
        async with open_sender(secret_lookup(KEY="a")) as sender:
            return await sender.send(HttpCall("POST", server.url, (), b"", AUTH), gap=PATIENCE, time=PATIENCE)

    with Server(HttpReply(400, (), b"a bad thing")) as server:
        assert asyncio.run(one()).body == b"a bad thing"


def test_plain_httpx_error_shows_the_credentials() -> None:
    """The same without care shows them all."""
    import httpx

    async def careless() -> str:
        transport = httpx.AsyncHTTPTransport()
        fields = [("x-api-key", CANARIES["KEY"]), ("x-team", CANARIES["TEAM"])]
        url = f"{server.url}/{CANARIES['PART']}"
        try:
            await transport.handle_async_request(httpx.Request("POST", url, headers=fields))
        except httpx.HTTPError as error:
            return traceback_with_locals(error)
        finally:
            await transport.aclose()
        return ""

    with Server([CLOSE]) as server:
        assert len(leaked_values(asyncio.run(careless()))) == 3


def test_request_variables_lists_the_variables_of_a_request() -> None:
    call = HttpCall("POST", "${A}/x/${B_2}", (("h", "${C}${A}"), ("i", "$D ${} ${1X} ${d-e}")), b"${F}", AUTH)
    assert list(request_variables(call)) == ["A", "B_2", "C", "A", "KEY"]
    assert list(request_variables(HttpCall("GET", "https://a", (), b""))) == []
