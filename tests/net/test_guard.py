"""The network guard of tool requests, with its checks of hosts and addresses and the connections that follow."""

import asyncio
from contextlib import nullcontext
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.errors import ProviderError
from agentrun.net.guard import RequestBlocked, UrlOrigin, check_addresses, is_public, refuse_other_origins, url_origin
from agentrun.wire import METADATA_HOSTS, HttpAuth, HttpCall, HttpReply, NetworkAccess

from ..named_cases import case
from ..servers import Server
from .certificates import Certificate
from .http_requests import GOOD, open_sender, secret_lookup

ANY = "0.0.0.0"  # noqa: S104  # nobody listens on it here
PRIVATE_V4 = (
    ANY, "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "100.100.100.200", "127.0.0.1", "127.255.0.1",
    "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.1.1.1",
    "240.0.0.1", "255.255.255.255",
)  # fmt: skip
PRIVATE_V6 = (
    "::", "::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::1%1", "fec0::1", "ff02::1", "100::1",
    "2001:db8::1", "2001:2::1", "3fff::1", "64:ff9b:1::1", "64:ff9b:1::808:808", "5f00::1", "4000::1", "fe00::1",
)  # fmt: skip
PUBLIC = ("1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700::1111", "2001:4860:4860::8888", "64:ff9b::808:808")


def ipv6_forms_of(v4: str) -> list[str]:
    """The v6 addresses that lead to a v4 address."""
    number = int(IPv4Address(v4))
    high, low = number >> 16, number & 0xFFFF
    teredo = IPv6Address((0x20010000 << 96) | (int(IPv4Address("8.8.8.8")) << 64) | (number ^ 0xFFFFFFFF))
    return [
        f"::ffff:{v4}", f"::{high:x}:{low:x}", f"::ffff:0:{high:x}:{low:x}", f"64:ff9b::{high:x}:{low:x}",
        f"2002:{high:x}:{low:x}::1", str(teredo), f"2606:4700::5efe:{high:x}:{low:x}",
        f"2606:4700::200:5efe:{high:x}:{low:x}",
    ]  # fmt: skip


def reach(*hosts: str, private: bool = False, home: str = "http://a.example/", most: int = 1000) -> NetworkAccess:
    return NetworkAccess(hosts, private, most, home)


def addresses(host: str, allowed: NetworkAccess, *answers: str) -> list[str]:
    async def resolve(name: str, port: int) -> list[str]:
        assert (name, port) == (host.lower(), 80)
        return list(answers)

    return asyncio.run(check_addresses(host, 80, allowed, resolve))


def reason(host: str, allowed: NetworkAccess, *answers: str) -> Any:
    with pytest.raises(ProviderError) as caught:
        addresses(host, allowed, *answers)
    assert host not in caught.value.message
    assert caught.value.fields["sent"] is False
    return caught.value.fields["reason"]


# --- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [*PRIVATE_V4, *PRIVATE_V6])
def test_private_address_is_refused(address: str) -> None:
    for form in (address, *(ipv6_forms_of(address) if address in PRIVATE_V4 else ())):
        with case(form):
            assert not is_public(form)
            assert reason("a.example", reach("a.example"), form) in ("private_network", "metadata")


@pytest.mark.parametrize("address", [*PUBLIC, *ipv6_forms_of("8.8.8.8")])
def test_public_address_is_allowed(address: str) -> None:
    assert is_public(address)
    assert addresses("a.example", reach("a.example"), address) == [address]


@given(st.ip_addresses(v=4))
def test_ipv6_form_of_an_ipv4_address_is_as_public_as_the_address(address: Any) -> None:
    public = is_public(str(address))
    assert public <= address.is_global
    assert [is_public(each) for each in ipv6_forms_of(str(address))] == [public] * 8


@given(st.ip_addresses(v=6))
def test_public_ipv6_addresses_are_global_and_not_multicast(address: Any) -> None:
    if is_public(str(address)):
        assert address.is_global or address.sixtofour or address.teredo
        assert not address.is_multicast


@pytest.mark.parametrize("first", [True, False])
def test_one_private_answer_refuses_the_host(first: bool) -> None:
    answers = ("8.8.8.8", "10.0.0.1")
    assert reason("a.example", reach("a.example"), *(answers if first else answers[::-1])) == "private_network"


def test_private_network_allows_private_addresses() -> None:
    assert addresses("a.example", reach(private=True), "10.0.0.1", "::1", "10.0.0.1") == ["10.0.0.1", "::1"]
    assert addresses("127.0.0.1", reach(private=True)) == ["127.0.0.1"]


@pytest.mark.parametrize("host", [each for each in sorted(METADATA_HOSTS) if ":" not in each])
def test_metadata_host_must_be_listed_by_name(host: str) -> None:
    answer = host if host[0].isdigit() else "169.254.169.254"
    assert reason(host, reach(host)) == "metadata"
    assert reason(host, reach("*.internal", private=True)) == "metadata"
    assert reason("a.example", reach("a.example", private=True), answer) == "metadata"
    assert reason("a.example", reach("a.example", private=True), ipv6_forms_of("169.254.169.254")[0]) == "metadata"
    assert addresses(host, reach(host, private=True), answer) == [answer]


def test_unknown_host_is_a_dns_failure() -> None:
    assert reason("a.example", reach("a.example")) == "dns"


# --- forms of hosts -----------------------------------------------------------------------------------------

ODD_URLS = (
    "http://2130706433/", "http://0x7f000001/", "http://127.1/", "http://0/", "http://0177.0.0.1/", "http://0x7f.1/",
    "http://127.0.0.1./", "http://localhost./", "http://a@b.example/", "http://a:b@b.example/", "http://@b.example/",
    "http://a.example#@b.example/", "http://a.example/#x", "http://a.example\\@b.example/", "http://a.example%2f/",
    "http://%31%32%37.0.0.1/", "http://ex\u0430mple.com/", "http://①②⑦.0.0.1/", "http://127。0。0。1/", "http://[::1%25lo]/",
    "http://[fe80::1%eth0]/", "http://[::1/", "http://a..example/", "http://.a.example/", "http://-a.example/",
    "http://a.example:0/", "http://a.example:99999/", "http://a.example:/", "http://a.example:8o/", "http:///x",
    "http://", "ftp://a.example/", "file:///etc/passwd", "//a.example/", "http://a.example/\r\nx", "http://a example/",
    "http://a.example/é", "http://a.example\t/", "http://1.2.3/", "http://1.2.3.4.5/", "http://256.1.1.1/",
    "http://a.example.1/", "http://[1.2.3.4]x/", "http://a\0.example/", "HTTP://a.example/", " http://a.example/",
)  # fmt: skip


@pytest.mark.parametrize("address", ODD_URLS)
def test_odd_forms_are_refused(address: str) -> None:
    with pytest.raises(RequestBlocked):
        url_origin(address)


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("http://a.example", ("http", "a.example", 80)),
        ("https://A.Example/x?y=z", ("https", "a.example", 443)),
        ("https://xn--exmple-4nf.com:8443/", ("https", "xn--exmple-4nf.com", 8443)),
        ("http://127.0.0.1:80?x", ("http", "127.0.0.1", 80)),
        ("http://[2606:4700:0::1]:81/", ("http", "2606:4700::1", 81)),
        ("http://my_host/", ("http", "my_host", 80)),
    ],
)
def test_usual_url_forms_give_their_origin(address: str, origin: tuple[str, str, int]) -> None:
    assert url_origin(address) == UrlOrigin(*origin)


@given(st.text(st.sampled_from("ht:p/[]%@#?\\.-_0123456789abcdefxX:é \t\n"), max_size=40))
def test_any_url_is_refused_or_has_a_plain_host(text: str) -> None:
    try:
        origin = url_origin("http://" + text)
    except RequestBlocked:
        return
    assert origin.host == origin.host.lower()
    assert not set(origin.host) & set("/@#%?\\ ")


# --- lists of hosts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "hosts", "expected"),
    [
        ("https://a.example/", ("a.example",), True),
        ("https://a.example:443/", ("a.example",), True),
        ("https://a.example/", ("A.example:443",), True),
        ("https://a.example:444/", ("a.example",), False),
        ("https://a.example:444/", ("a.example:444",), True),
        ("https://a.example/", ("a.example:80",), False),
        ("https://b.example/", ("a.example", "b.example"), True),
        ("https://x.a.example/", ("a.example",), False),
        ("https://x.a.example/", ("*.a.example",), True),
        ("https://y.x.a.example/", ("*.a.example",), True),
        ("https://a.example/", ("*.a.example",), False),
        ("https://evil-a.example/", ("*.a.example",), False),
        ("https://a.example.evil.example/", ("a.example",), False),
        ("https://x.a.example:8443/", ("*.a.example",), False),
        ("https://x.a.example:8443/", ("*.a.example:8443",), True),
        ("https://[2606:4700::1]/", ("[2606:4700:0::1]",), True),
        ("https://1.1.1.1/", ("*.1.1",), False),
        ("http://a.example/", ("a.example",), False),  # the declared address is https
        ("https://home.example/", (), True),
        ("https://home.example:444/", (), False),
        ("https://a.example/", (), False),
    ],
)
def test_host_list_allows_only_its_hosts_and_ports(address: str, hosts: tuple[str, ...], expected: bool) -> None:
    with nullcontext() if expected else pytest.raises(RequestBlocked):
        refuse_other_origins(url_origin(address), reach(*hosts), url_origin("https://home.example/x"))


# --- what is connected to -----------------------------------------------------------------------------------


class Names:
    """Names with addresses that change, one list for each time somebody looks."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        del host, port
        self.asked += 1
        return self._answers[min(self.asked, len(self._answers)) - 1]


def send_all(names: Names, *calls: HttpCall, trust_env: bool = False, **known: str) -> list[HttpReply | ProviderError]:
    async def all_of_them() -> list[HttpReply | ProviderError]:
        got: list[HttpReply | ProviderError] = []
        lookup = secret_lookup(KEY="value-of-key", **known)
        async with open_sender(lookup, trust_env=trust_env, resolve=names) as sender:
            for call in calls:
                try:
                    got.append(await sender.send(call, gap=5000, time=5000))
                except ProviderError as error:
                    got.append(error)
        return got

    return asyncio.run(all_of_them())


def get(url: str, allowed: NetworkAccess, method: str = "GET") -> HttpCall:
    return HttpCall(method, url, (("x-mine", "1"),), b"", HttpAuth("x-api-key", "", "KEY"), allowed)


def test_checked_address_is_connected_to_with_the_host_header() -> None:
    with Server(GOOD) as server:
        url = f"http://shop.example:{server.port}/x"
        (reply,) = send_all(Names(["127.0.0.1"]), get(url, reach(private=True, home=url)))
    assert isinstance(reply, HttpReply)
    assert reply.status == 200
    assert server.requests[0].headers["host"] == f"shop.example:{server.port}"


@pytest.mark.parametrize("answers", [["127.0.0.3", "127.0.0.1"], ["127.0.0.1", "127.0.0.3"]], ids=["last", "first"])
def test_the_first_address_that_answers_is_taken(answers: list[str]) -> None:
    with Server(GOOD) as server:
        url = f"http://shop.example:{server.port}/x"
        (reply,) = send_all(Names(answers), get(url, reach(private=True, home=url)))
    assert isinstance(reply, HttpReply)


def test_host_name_is_resolved_once_for_check_and_connection() -> None:
    """Public when it is checked, loopback when it is connected to: one lookup serves both. And it is done each time."""
    names = Names(["8.8.8.8", "127.0.0.1"], ["127.0.0.1"], ["10.0.0.1"])
    with Server(GOOD) as server:
        url = f"http://shop.example:{server.port}/x"
        got = send_all(names, *[get(url, reach(home=url))] * 3)
    assert [each.fields["reason"] for each in got if isinstance(each, ProviderError)] == ["private_network"] * 3
    assert names.asked == 3
    assert server.connections == 0


def test_connection_is_reused_only_for_the_same_address() -> None:
    names = Names(["127.0.0.1"], ["127.0.0.1"], ["127.0.0.2"], ["8.8.8.8", "127.0.0.1"])
    with Server(GOOD) as server:
        url = f"http://shop.example:{server.port}/x"
        open_call, shut = get(url, reach(private=True, home=url)), get(url, reach(home=url))
        first, second, third, fourth = send_all(names, open_call, open_call, open_call, shut)
    assert [type(each) for each in (first, second)] == [HttpReply, HttpReply]
    assert [request.connection for request in server.requests] == [1, 1]
    assert isinstance(third, ProviderError), "nobody listens on the other address, and the old connection is not taken"
    assert isinstance(fourth, ProviderError)


def test_a_connection_of_a_model_is_not_taken() -> None:
    with Server(GOOD) as server:
        model = HttpCall("GET", f"{server.url}/v1", (), b"")
        tool = get(f"{server.url}/x", reach(home=server.url))
        allowed = get(f"{server.url}/x", reach(home=server.url, private=True))
        first, second, third = send_all(Names(), model, tool, allowed)
    assert isinstance(first, HttpReply)
    assert isinstance(second, ProviderError)
    assert isinstance(third, HttpReply)
    assert [request.connection for request in server.requests] == [1, 2]


def test_post_request_uses_a_new_connection() -> None:
    with Server(GOOD) as server:
        allowed = reach(home=server.url, private=True)
        send_all(Names(), *[get(f"{server.url}/x", allowed, "POST")] * 2, get(f"{server.url}/x", allowed))
        assert server.is_quiet()
    assert [request.connection for request in server.requests] == [1, 2, 3]


def test_credentials_are_sent_only_to_the_declared_host() -> None:
    with Server(GOOD) as home, Server(GOOD) as other:
        allowed = NetworkAccess((f"127.0.0.1:{home.port}", f"127.0.0.1:{other.port}"), True, 1000, f"{home.url}/a")
        send_all(Names(), get(f"{home.url}/b", allowed), get(f"{other.url}/b", allowed))
    assert home.requests[0].headers["x-api-key"] == "value-of-key"
    assert home.requests[0].headers["x-mine"] == "1"
    assert not {"x-api-key", "x-mine"} & other.requests[0].headers.keys()


def test_url_is_checked_after_its_variable_is_filled_in() -> None:
    with Server(GOOD) as server:
        allowed = NetworkAccess((), True, 1000, "${BASE}/x")
        reply, other = send_all(
            Names(), get("${BASE}/x", allowed), get(f"http://127.0.0.2:{server.port}/", allowed), BASE=server.url
        )
        (refused,) = send_all(Names(), get("${BASE}/x", allowed), BASE="http://x@127.0.0.1/")
    assert isinstance(reply, HttpReply)
    assert isinstance(other, ProviderError)
    assert other.fields["reason"] == "hosts"
    assert isinstance(refused, RequestBlocked)
    assert "127" not in refused.message


def test_tool_requests_do_not_use_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(GOOD) as server, Server(GOOD) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        tool = get(f"{server.url}/x", reach(home=server.url, private=True))
        shut = get(f"{server.url}/x", reach(home=server.url))
        send_all(Names(), tool, shut, HttpCall("GET", "http://model.example/", (), b""), trust_env=True)
    assert len(server.requests) == 1
    assert [request.line for request in proxy.requests] == ["GET http://model.example/ HTTP/1.1"], "the model's"


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
def test_reply_over_the_limit_of_the_tool_is_a_decode_error(size: int, fits: bool) -> None:
    with Server(HttpReply(200, (), b"x" * size)) as server:
        (got,) = send_all(Names(), get(server.url, reach(home=server.url, private=True)))
    if fits:
        assert isinstance(got, HttpReply)
    else:
        assert isinstance(got, ProviderError)
        assert (got.code, got.fields["limit"], got.fields["status"]) == ("provider.decode", 1000, 200)


def test_certificate_is_checked_for_the_host_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is for 127.0.0.1: under another name nobody may show it, although the address is the same."""
    certificate = Certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    with Server(GOOD, tls=certificate.server()) as server:
        other = f"https://shop.example:{server.port}/"
        good, bad = send_all(
            Names(["127.0.0.1"]),
            get(server.url, reach(home=server.url, private=True)),
            get(other, reach(home=other, private=True)),
            trust_env=True,
        )
    assert isinstance(good, HttpReply)
    assert isinstance(bad, ProviderError)
    assert (bad.fields["reason"], bad.fields["sent"]) == ("tls", False)
