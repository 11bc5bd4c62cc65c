"""HTTP tools under attack (THREATS 37, 46 to 51, 80; fault 29), each through a whole run."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from agentrun.cassette.file import load_cassette
from agentrun.compiler.compile import compile_or_raise
from agentrun.core.facts import ToolFinished
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.request import Request
from agentrun.engine.runtime import Runtime
from agentrun.journal.canonical import canonical
from agentrun.journal.storage import read_journal_file
from agentrun.net.client import HttpxSender, make_client
from agentrun.secret import Secret
from agentrun.testing import calls, scripted, text
from agentrun.tools.http import HttpTools
from agentrun.wire import HttpReply

from ..net.test_guard import ODD_URLS, PRIVATE_V4, PRIVATE_V6, Names, ipv6_forms_of
from ..servers import CLOSE, Server, reply_with_length
from ..servers import Request as ServerRequest
from .http_desk import HttpDesk, http_tool

JSON = (("Content-Type", "application/json"),)
GOOD = HttpReply(200, JSON, b'{"id": 7, "state": "late", "lines": [1, 2]}')
SECRET = "Zq7-the-secret-of-the-shop/+=="  # planted
AUTH = {"secret": "${SHOP_TOKEN}"}


# --- 46 and 47: forms of hosts, ranges of addresses ---------------------------------------------------------

LOOPBACK = (
    "http://2130706433:{port}/", "http://0x7f000001:{port}/", "http://127.1:{port}/", "http://0:{port}/",
    "http://0177.0.0.1:{port}/", "http://a@127.0.0.1:{port}/", "http://127.0.0.1.:{port}/", "http://localhost.:{port}/",
    "http://a.example#@127.0.0.1:{port}/", "http://127.0.0.1:{port}/#x", "http://%31%32%37.0.0.1:{port}/",
    "http://①②⑦.0.0.1:{port}/", "http://127。0。0。1:{port}/", "http://loc\u0430lhost:{port}/",
    "http://a.example\\@127.0.0.1:{port}/",
)  # fmt: skip
"""Forms that may reach the loopback interface."""
LOOPBACK_URLS = ("http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
         "http://0.0.0.0:{port}/", "http://127.0.0.2:{port}/")  # fmt: skip


def test_odd_and_private_hosts_are_never_connected_to(tmp_path: Path) -> None:
    """Odd forms are refused even where the private network is allowed, plain ones where it is not."""
    with Server(GOOD) as server:
        odd = [
            each.format(port=server.port)
            for each in (*LOOPBACK, *ODD_URLS)
            if "\0" not in each and each == each.strip()
        ]
        plain = [each.format(port=server.port) for each in LOOPBACK_URLS]
        names = [f"t{n}" for n in range(len(odd) + len(plain))]
        tools = {name: http_tool(f"${{{name.upper()}}}", private_network=n < len(odd)) for n, name in enumerate(names)}
        desk = HttpDesk(tmp_path, tools, budgets={"turns": 99, "time": "5m"})
        env = {name.upper(): url for name, url in zip(names, [*odd, *plain], strict=True)}
        done = desk.live(*[(name, {}) for name in names], **env)
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert server.connections == 0
    assert set(desk.reasons()[: len(odd)]) <= {"address", "host", "fatal"}
    assert desk.reasons()[len(odd) :] == ["private_network"] * len(plain)


def test_private_and_metadata_addresses_are_refused(tmp_path: Path) -> None:
    private = [*PRIVATE_V4, *ipv6_forms_of("169.254.169.254"), *ipv6_forms_of("127.0.0.1"), *ipv6_forms_of("10.0.0.1")]
    private += [each for each in PRIVATE_V6 if "%" not in each]
    hosts = [f"[{each}]" if ":" in each else each for each in private]
    metadata = ["169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal", "[::ffff:169.254.169.254]"]
    tools = {f"t{n}": http_tool(f"http://{host}:9/") for n, host in enumerate(hosts)}
    tools |= {f"m{n}": http_tool(f"http://{host}:9/", private_network=True) for n, host in enumerate(metadata)}
    desk = HttpDesk(tmp_path, tools, budgets={"turns": 99, "time": "5m"})
    done = desk.live(*[(name, {}) for name in tools])
    assert done.code == 0, done.err
    assert set(desk.reasons()[: len(hosts)]) == {"private_network", "metadata"}
    assert desk.reasons()[len(hosts) :] == ["metadata"] * len(metadata)


# --- 48: names that change their meaning --------------------------------------------------------------------


def reasons_with_names(
    folder: Path, names: Names, tools: dict[str, Any], *made: tuple[str, dict[str, Any]]
) -> list[Any]:
    """A whole run whose names of hosts mean what a test says."""
    desk = HttpDesk(folder, tools)
    _, file = compile_or_raise(desk.spec)
    journals = MemoryJournals()

    async def whole() -> None:
        async with make_client(resolve=names) as client:
            runtime = Runtime.in_memory(
                journals=journals,
                providers={"openai": scripted(*[calls(tool, **given) for tool, given in made], text("Done."))},
                executors={"http": HttpTools(HttpxSender(client, Secret))},
            )
            await runtime.start(Request(agent="shop", package=file, run="r1")).wait()

    asyncio.run(whole())
    found = [record.fact for record in journals.records("r1")]
    return [fact.fault and fact.fault.fields.get("reason") for fact in found if isinstance(fact, ToolFinished)]


def test_a_name_is_looked_up_once_for_each_request(tmp_path: Path) -> None:
    """Public when it is checked, ours when it is connected to: the second meaning is never asked for."""
    names = Names(["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["127.0.0.1"])
    with Server(GOOD) as server:
        tools = {"get": http_tool(f"http://shop.example:{server.port}/")}
        assert reasons_with_names(tmp_path, names, tools, *[("get", {})] * 3) == ["private_network"] * 3
    assert (names.asked, server.connections) == (3, 0)


def test_host_name_is_checked_again_for_every_redirect_and_retry(tmp_path: Path) -> None:
    """Every hop and every try is checked anew, and a kept connection is none of the next meaning."""
    with Server(HttpReply(302, (("Location", "/again"),), b"")) as server:
        tools = {"get": http_tool(f"http://shop.example:{server.port}/", private_network=True)}
        assert reasons_with_names(tmp_path, Names(["127.0.0.1"], ["169.254.169.254"]), tools, ("get", {})) == [
            "metadata"
        ]
    assert len(server.requests) == 1
    with Server([CLOSE]) as server:
        tools = {"get": http_tool(f"http://shop.example:{server.port}/", private_network=True)}
        assert reasons_with_names(tmp_path, Names(["127.0.0.1"], ["169.254.169.254"]), tools, ("get", {})) == [
            "metadata"
        ]
    assert len(server.requests) == 1


# --- 37 and 50: redirections, proxies, files of passwords ---------------------------------------------------


def test_redirect_drops_credentials_and_stays_on_listed_hosts(tmp_path: Path) -> None:
    with Server(GOOD) as other:
        away = HttpReply(302, (("Location", f"{other.url}/take"),), b"")
        with Server(away) as server:
            desk = HttpDesk(
                tmp_path,
                {
                    "own": http_tool(f"{server.url}/", private_network=True, auth=AUTH | {"header": "X-Api-Key"}),
                    "listed": http_tool(
                        f"{server.url}/",
                        private_network=True,
                        auth=AUTH,
                        headers={"X-Token": "${SHOP_TOKEN}"},
                        hosts=[f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}"],
                    ),
                },
            )
            done = desk.live(("own", {}), ("listed", {}), SHOP_TOKEN=SECRET)
    assert done.code == 0, done.err
    assert desk.reasons() == ["hosts", None]
    assert len(server.requests) == 2
    assert [request.line for request in other.requests] == ["GET /take HTTP/1.1"]
    assert SECRET not in str(other.requests)
    assert "x-token" not in other.requests[0].headers


WAYS = {"/next": "/next", "next?z=1": "/api/x/next?z=1", "../up": "/api/up", "{url}/abs": "/abs",
        "{url}/api/abs": "/api/abs", "//{host}/short": "/short", "http://[::1/": None}  # fmt: skip
"""Where a server redirects to, and what it is asked for then."""


def test_redirect_on_a_host_from_a_variable_is_recorded_without_the_host(tmp_path: Path) -> None:
    """No cassette has the host, wherever on it a redirect leads. A redirect that is not an address is a failure."""
    forms = {"${BASE}/x/y": "{url}/api", "${BASE_SLASH}/x/y": "{url}/api/", "http://${HOST}/x/y": "{host}/api"}
    tools = {f"t{n}": http_tool(url, private_network=True) for n, url in enumerate(forms)}
    for number, (way, then) in enumerate(WAYS.items()):
        with Server() as server:
            names = {"url": server.url, "host": server.url.removeprefix("http://")}
            moved = reply_with_length(HttpReply(302, (("Location", way.format(**names)),), b""))
            server.plans = [moved, reply_with_length(GOOD)] * 3 if then else [moved]
            (folder := tmp_path / str(number)).mkdir()
            desk = HttpDesk(folder, tools)
            env = {url[url.index("{") + 1 : url.index("}")]: value.format(**names) for url, value in forms.items()}
            done = desk.live(*[(tool, {}) for tool in tools], mode="record", **env)
        assert done.code == 0, done.err
        asked = [request.line.split()[1] for request in server.requests]
        assert asked == (["/api/x/y", then] if then else ["/api/x/y"]) * 3
        assert desk.reasons() == ([None] if then else ["address"]) * 3
        assert str(server.port).encode() not in desk.cassette.read_bytes()
        assert desk.run().code == 0


def test_a_redirection_takes_no_body_along(tmp_path: Path) -> None:
    with Server(GOOD) as other, Server(HttpReply(302, (("Location", f"{other.url}/take"),), b"")) as server:
        hosts = [f"127.0.0.1:{each.port}" for each in (server, other)]
        tool = http_tool(f"{server.url}/", private_network=True, hosts=hosts, body={"note": "{{ args.x }}"})
        done = HttpDesk(tmp_path, {"get": tool}).live(("get", {"x": "for the shop only"}))
    assert done.code == 0, done.err
    assert (server.requests[0].body, other.requests[0].body) == (b'{"note":"for the shop only"}', b"")


def test_proxies_and_netrc_of_the_environment_are_ignored(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password netrc-canary\n", encoding="utf-8")
    with Server(GOOD) as server, Server(GOOD) as proxy:
        desk = HttpDesk(tmp_path, {"get": http_tool(f"{server.url}/", private_network=True)})
        proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), proxy.url)
        done = desk.live(("get", {}), NETRC=str(tmp_path / ".netrc"), **proxies)
    assert done.code == 0, done.err
    assert proxy.connections == 0
    assert "authorization" not in server.requests[0].headers


# --- 51: what arguments put into requests -------------------------------------------------------------------

INJECTED_VALUES = ("a/../../admin", "..", ".", "", "a?admin=1", "a#x", "a&admin=1", "a\r\nX-Admin: 1", "a\nb", "a\\b",
            "%2e%2e", "${SHOP_TOKEN}", "a b", "é", "{{ args.y }}")  # fmt: skip


def test_arguments_stay_in_their_part_of_the_request(tmp_path: Path) -> None:
    with Server(GOOD) as server:
        tools = {
            "path": http_tool(f"{server.url}/o/{{{{ args.x }}}}/items", private_network=True),
            "query": http_tool(f"{server.url}/s?q={{{{ args.x }}}}&z=1", private_network=True),
            "extra": http_tool(f"{server.url}/s", private_network=True, query={"q": "{{ args.x }}"}),
            "head": http_tool(f"{server.url}/h", private_network=True, headers={"X-Word": "{{ args.x }}"}),
            "body": http_tool(
                f"{server.url}/b",
                private_network=True,
                method="POST",
                effect="read",
                body={"x": "{{ args.x }}", "y": "fixed"},
            ),
        }
        desk = HttpDesk(tmp_path, tools, budgets={"turns": 99, "time": "5m"})
        done = desk.live(*[(tool, {"x": value}) for tool in tools for value in INJECTED_VALUES], SHOP_TOKEN=SECRET)
    assert done.code == 0, done.err
    by_path: dict[str, list[ServerRequest]] = {}
    for request in server.requests:
        by_path.setdefault(request.line.split()[1][:2], []).append(request)
        assert not {"x-admin"} & request.headers.keys()
        assert SECRET not in str(request)
        assert "admin=1" not in request.line.replace("%26admin%3D1", "").replace("%3Fadmin%3D1", "")
    assert [each.line.split()[1] for each in by_path["/o"]] == [
        "/o/a%3Fadmin%3D1/items", "/o/a%23x/items", "/o/a%26admin%3D1/items", "/o/%252e%252e/items",
        "/o/%24%7BSHOP_TOKEN%7D/items", "/o/a%20b/items", "/o/%C3%A9/items", "/o/%7B%7B%20args.y%20%7D%7D/items",
    ]  # fmt: skip
    assert len(by_path["/s"]) == 2 * len(INJECTED_VALUES)
    assert all(each.line.count("&") + each.line.count("?") <= 2 for each in by_path["/s"])
    sent = [each.headers["x-word"] for each in by_path["/h"]]
    assert sent == [each for each in INJECTED_VALUES if each.isascii() and each.isprintable() and "${" not in each]
    assert [json.loads(each.body)["x"] for each in by_path["/b"]] == list(INJECTED_VALUES)


def test_argument_cannot_name_a_variable_in_the_url(tmp_path: Path) -> None:
    """The address may begin with a variable; no argument can name another one."""
    with Server(GOOD) as server:
        tools = {
            "base": http_tool("${SHOP_URL}/o/{{ args.x }}", private_network=True),
            "host": http_tool("http://${SHOP_HOST}/o?q={{ args.x }}", private_network=True),
        }
        desk = HttpDesk(tmp_path, tools)
        values = ("7", "${SHOP_TOKEN}")
        host = server.url.removeprefix("http://")
        done = desk.live(
            *((tool, {"x": value}) for tool in tools for value in values),
            SHOP_URL=server.url,
            SHOP_HOST=host,
            SHOP_TOKEN=SECRET,
        )
    assert done.code == 0, done.err
    lines = [request.line.split()[1] for request in server.requests]
    assert lines == ["/o/7", "/o/%24%7BSHOP_TOKEN%7D", "/o?q=7", "/o?q=%24%7BSHOP_TOKEN%7D"]


# --- 80: the credential -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 403, 302])
def test_credential_repeated_by_the_server_is_in_no_file_or_output(tmp_path: Path, status: int) -> None:
    """A server that says it again in every way: in no journal, no recording, no terminal."""
    ways = [SECRET, json.dumps({"a": SECRET}), b64encode(SECRET.encode()).decode(), SECRET.encode().hex()]
    ways += [SECRET.replace("+", "\\u002B"), SECRET.replace("+", "&#43;"), SECRET.replace("/", "\\/")]
    reply = HttpReply(status, (("X-Again", SECRET), ("Location", f"/?x={SECRET}")), "\n".join(ways).encode())
    with Server(reply) as server:
        tool = http_tool(f"{server.url}/a", private_network=True, auth=AUTH, headers={"X-Token": "${SHOP_TOKEN}"})
        desk = HttpDesk(tmp_path, {"get": tool, "post": tool | {"method": "POST"}})
        done = desk.live(("get", {}), ("post", {}), mode="record", SHOP_TOKEN=SECRET)
        again = desk.run("--json")
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert (done.code, again.code) == (0, 0), done.err + again.err
    said = desk.written() + "".join([done.out, done.err, again.out, again.err]).encode()
    for way in (SECRET[:26], b64encode(SECRET.encode()).decode().rstrip("="), SECRET.encode().hex()):
        assert way.encode() not in said
    assert b"Bearer" not in said.replace(b'"scheme":"Bearer"', b""), "the package has the name of the scheme"


def test_unset_credential_variable_stops_the_run_before_connecting(tmp_path: Path) -> None:
    with Server(GOOD) as server:
        desk = HttpDesk(tmp_path, {"get": http_tool(f"{server.url}/a", private_network=True, auth=AUTH)})
        done = desk.live(("get", {}))
    assert (done.code, "SHOP_TOKEN" in done.err, server.connections) == (2, True, 0)


# --- fault 29: the effect is done, the reply is lost --------------------------------------------------------


def idempotency_keys(server: Server) -> set[str]:
    """What a server that knows about keys has done."""
    return {request.headers["idempotency-key"] for request in server.requests}


@pytest.mark.parametrize(("effect", "code", "asked"), [("at_most_once", 8, 1), ("idempotent", 0, 2)])
def test_lost_reply_of_a_committed_call_has_one_effect(tmp_path: Path, effect: str, code: int, asked: int) -> None:
    with Server([CLOSE], GOOD) as server:
        tool = http_tool(f"{server.url}/pay", private_network=True, method="POST", effect=effect, body={"sum": 20})
        desk = HttpDesk(tmp_path, {"pay": tool})
        done = desk.live(("pay", {}))
    assert done.code == code, done.err
    assert (len(server.requests), len(idempotency_keys(server))) == (asked, 1)
    assert len({request.body for request in server.requests}) == 1
    kinds = [type(record.fact).__name__ for record in read_journal_file(desk.root / "run.jsonl")]
    assert ("WorkLost" in kinds) is (effect == "at_most_once")


# --- a cassette -------------------------------------------------------------------------------------------------


def canonical_journal(desk: HttpDesk) -> str:
    return canonical(read_journal_file(desk.root / "run.jsonl"))


def test_recorded_http_calls_are_replayed_without_the_server(tmp_path: Path) -> None:
    with Server(HttpReply(302, (("Location", "/b"),), b""), GOOD, [CLOSE], GOOD, HttpReply(404, (), b"no")) as server:
        tool = http_tool(f"{server.url}/a/{{{{ args.id }}}}", private_network=True, result="state", auth=AUTH)
        desk = HttpDesk(tmp_path, {"get": tool})
        made = [("get", {"id": 7}), ("get", {"id": 8}), ("get", {"id": 9})]
        done = desk.live(*made, mode="record", SHOP_TOKEN=SECRET)
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert desk.texts() == ["late", "late", "tool.execution: status 404\nno"]
    live = canonical_journal(desk)
    cassette = load_cassette(desk.cassette)
    asked = [each.call.url.removeprefix(server.url) for each in cassette.interactions if "openai" not in each.call.url]
    assert asked == ["/a/7", "/b", "/a/8", "/a/8", "/a/9"]
    assert all("openai" in each for each in cassette.metadata["where"])

    (desk.root / "run.jsonl").unlink()
    replayed = desk.run("--journal", "run.jsonl")
    assert (replayed.code, replayed.out) == (0, "Done.\n"), replayed.err
    assert canonical_journal(desk) == live
    assert len(server.requests) == 5


def test_unknown_status_is_recorded_and_replayed(tmp_path: Path) -> None:
    """Some servers say 999. What was recorded can be read again."""
    with Server(HttpReply(999, (), b"go away"), HttpReply(600, (), b"")) as server:
        desk = HttpDesk(tmp_path, {"get": http_tool(f"{server.url}/a", private_network=True)})
        done = desk.live(("get", {}), ("get", {}), mode="record")
    assert (done.code, desk.texts()[0]) == (0, "tool.execution: status 999\ngo away"), done.err
    live = canonical_journal(desk)
    (desk.root / "run.jsonl").unlink()
    replayed = desk.run("--journal", "run.jsonl")
    assert (replayed.code, canonical_journal(desk)) == (0, live), replayed.err


def test_changed_result_expression_replays_the_old_cassette(tmp_path: Path) -> None:
    """The cassette has the reply and not what was made of it: what the model reads changes, what is asked does not."""
    with Server(GOOD) as server:
        tool = http_tool(f"{server.url}/a", private_network=True, result="state", terminal=True)
        desk = HttpDesk(tmp_path, {"get": tool})
        assert desk.live(("get", {}), mode="record").code == 0
    desk.edit("shop.yaml", "result: state", "result: lines")
    done = desk.run()
    assert (done.code, done.out) == (0, "[1,2]\n"), done.err


def test_another_request_is_a_miss_that_says_what_changed(tmp_path: Path) -> None:
    with Server(GOOD) as server:
        tool = http_tool(f"{server.url}/a", private_network=True, method="POST", effect="read", body={"sum": 20})
        desk = HttpDesk(tmp_path, {"get": tool})
        assert desk.live(("get", {}), mode="record").code == 0
    desk.edit("shop.yaml", "sum: 20", "sum: 21")
    done = desk.run()
    assert done.code == 3
    assert "cassette.miss" in done.err
    assert "20" in done.err
    assert "21" in done.err
    assert len(server.requests) == 1
