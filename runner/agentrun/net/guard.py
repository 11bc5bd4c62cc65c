"""The hosts and addresses that requests of tools may reach.

Rule 1  A host consists of letters, digits, dots and dashes, or is an IP address in its usual form. Everything that URL
        parsers interpret differently (a user, a fragment, `127.1`, `0x7f000001`, a trailing dot, `%41`, similar-looking
        letters) is refused.
Rule 2  The list of hosts is checked first. Without a list, only the origin of the declared address is allowed. A
        request never goes from https to http.
Rule 3  A host name is resolved once. All its addresses must be allowed, and the connection goes to one of them, so a
        later change of the DNS answer has no effect.
Rule 4  Only public addresses are allowed, unless `private_network` is true. A v4 address inside a v6 address is checked
        as v4.
Rule 5  Metadata services, which hand out credentials, must also be listed literally.
Rule 6  No error contains the host, because it may come from the environment.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

from msgspec import Struct

from agentrun.errors import ProviderError
from agentrun.net.failures import no_reply_error
from agentrun.wire import METADATA_HOSTS, NetworkAccess

IpAddress: TypeAlias = IPv4Address | IPv6Address
Resolver: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host name. Raises OSError if there are none."""

_ADDRESS = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?(?:[/?][!-~]*)?")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*")
_ENTRY = re.compile(r"(\[[0-9a-f:.]+\]|[^:]+)(?::([0-9]+))?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS = {"http": 80, "https": 443}

_MAPPED = (IPv6Network("::/96"), IPv6Network("::ffff:0:0/96"), IPv6Network("::ffff:0:0:0/96"))
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_PUBLIC_V6 = IPv6Network("2000::/3")
_NOT_PUBLIC: tuple[IPv4Network | IPv6Network, ...] = (
    *map(IPv4Network, ("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")),
    *map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")),
)
"""Networks that `is_global` of some Python versions treats as public."""
_LINK_LOCAL = (IPv4Network("169.254.0.0/16"), IPv6Network("fe80::/10"))


class RequestBlocked(ProviderError):
    """A request that is not sent because of its destination."""


class UrlOrigin(Struct, frozen=True):
    """Scheme, normalised host and port."""

    scheme: str
    host: str
    port: int


def request_blocked(why: str, reason: str) -> RequestBlocked:
    message = f"the request is not sent: {why}"
    return RequestBlocked("provider.fatal", message, fields={"status": None, "reason": reason, "sent": False})


def url_origin(address: str) -> UrlOrigin:
    """The origin of an address. Raises `RequestBlocked` for an unusual address."""
    match = _ADDRESS.fullmatch(address)
    if match is None or "\\" in address or "#" in address:
        raise request_blocked("its address is not a plain http or https address", "address")
    scheme, host, port = match[1], normalise_host(match[2]), int(match[3] or _PORTS[match[1]])
    if not 0 < port < 65536:
        raise request_blocked("its address has an invalid port", "address")
    return UrlOrigin(scheme, host, port)


def normalise_host(host: str) -> str:
    """The form of a host that is compared. Raises `RequestBlocked` for an unusual host."""
    host = host.lower()
    bare = host[1:-1] if host[:1] == "[" else host
    if ":" in bare or _NUMBER.fullmatch(bare.rpartition(".")[2]):  # browsers distinguish IP addresses in the same way
        try:
            return str(ip_address(bare))
        except ValueError:
            raise request_blocked("its host is not an IP address in the usual form", "host") from None
    if not _NAME.fullmatch(host):
        raise request_blocked("its host is not a valid host name", "host")
    return host


def refuse_other_origins(origin: UrlOrigin, reach: NetworkAccess, home: UrlOrigin) -> None:
    """Raise `RequestBlocked` for an origin that is not allowed."""
    if home.scheme == "https" and origin.scheme != "https":
        raise request_blocked("it would go from https to http", "scheme")
    listed = any(_entry_matches(entry, origin) for entry in reach.hosts) if reach.hosts else origin == home
    if not listed:
        raise request_blocked("the tool is not allowed to reach its host", "hosts")


async def resolve_host(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def check_addresses(host: str, port: int, reach: NetworkAccess, resolve: Resolver = resolve_host) -> list[str]:
    """The addresses of a host, if all are allowed. Connect only to these.

    Raises `RequestBlocked` (`provider.fatal`), or `provider.transient` if the name cannot be resolved.
    """
    host = normalise_host(host)
    listed = {_entry_host(entry) for entry in reach.hosts}
    if host in METADATA_HOSTS and not (host in listed and reach.private_network):
        raise request_blocked("its host is a cloud service that hands out credentials", "metadata")
    try:
        answers = [host] if _is_ip(host) else list(dict.fromkeys(await resolve(host, port)))
    except (OSError, UnicodeError):
        answers = []
    if not answers:
        raise no_reply_error("dns", sent=False)
    for answer in answers:
        _refuse_address(answer, reach, METADATA_HOSTS if host in METADATA_HOSTS else listed)
    return answers


def is_public(address: str) -> bool:
    """Whether an address is public. An address with an interface (`fe80::1%eth0`) is not."""
    return "%" not in address and all(map(_is_public, embedded_addresses(ip_address(address))))


def embedded_addresses(address: IpAddress) -> Iterator[IpAddress]:
    """The v4 addresses inside a v6 address, or the address itself."""
    if isinstance(address, IPv4Address):
        yield address
        return
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in (*_MAPPED, _NAT64)):
        yield last
    elif address.teredo is not None:
        yield from address.teredo
    elif address.sixtofour is not None:
        yield address.sixtofour
    else:
        yield address
        if address in _LOCAL_NAT64 or (int(address) >> 32) & 0xFCFFFFFF == 0x5EFE:  # ISATAP: behind any prefix
            yield last


def _is_public(address: IpAddress) -> bool:
    if isinstance(address, IPv6Address) and address not in _PUBLIC_V6:
        return False
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _refuse_address(answer: str, reach: NetworkAccess, listed: Collection[str | None]) -> None:
    """`listed`: the allowed metadata hosts."""
    if not reach.private_network and not is_public(answer):
        raise request_blocked("it would reach a private address, and `private_network` is not true", "private_network")
    for inside in embedded_addresses(ip_address(answer.partition("%")[0])):
        if (str(inside) in METADATA_HOSTS or _is_link_local(inside)) and str(inside) not in listed:
            raise request_blocked("it would reach a cloud service that hands out credentials", "metadata")


def _is_link_local(address: IpAddress) -> bool:
    return any(address in network for network in _LINK_LOCAL if network.version == address.version)


def _entry_matches(entry: str, origin: UrlOrigin) -> bool:
    found = _ENTRY.fullmatch(entry.lower())
    if found is None or int(found[2] or _PORTS[origin.scheme]) != origin.port:
        return False
    if found[1].startswith("*."):
        return origin.host.endswith(found[1][1:]) and not _is_ip(origin.host)
    return _entry_host(entry) == origin.host


def _entry_host(entry: str) -> str | None:
    """The host of a list entry. None: the entry is invalid or a wildcard."""
    found = _ENTRY.fullmatch(entry.lower())
    try:
        return None if found is None or found[1].startswith("*") else normalise_host(found[1])
    except RequestBlocked:
        return None


def _is_ip(host: str) -> bool:
    return ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None
