"""Which hosts and addresses the requests of tools may reach.

Rule 1  An address is a plain one or none: letters, digits, dots and dashes, or an IP address in its usual form. What
        readers of addresses disagree about (a user, a fragment, `127.1`, `0x7f000001`, a dot at the end, `%41`, letters
        that look like others) is refused, not understood.
Rule 2  The list of hosts comes first. Without a list only the origin of the declared address may be reached. From https
        no way leads to http.
Rule 3  A name is looked up once. All its addresses must be allowed, and only those are connected to: what was checked
        is what is reached, whatever the name means a moment later.
Rule 4  Public addresses only, unless `private_network` is true. A v4 address inside a v6 address counts as itself.
Rule 5  The services that give a machine its credentials need more: their host, literally, in the list.
Rule 6  No error repeats a host: it may come from the environment.
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
from agentrun.wire import METADATA_HOSTS, NetworkAccess

IpAddress: TypeAlias = IPv4Address | IPv6Address
Resolver: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a name. Raises OSError when it has none."""

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
"""What `is_global` of some version of Python takes for public."""
_LINK_LOCAL = (IPv4Network("169.254.0.0/16"), IPv6Network("fe80::/10"))


class RequestBlocked(ProviderError):
    """A request that is not sent, for where it would go."""


class UrlOrigin(Struct, frozen=True):
    """Scheme, host in its usual form, and port."""

    scheme: str
    host: str
    port: int


def request_blocked(why: str, reason: str) -> RequestBlocked:
    message = f"the request is not sent: {why}"
    return RequestBlocked("provider.fatal", message, fields={"status": None, "reason": reason, "sent": False})


def url_origin(address: str) -> UrlOrigin:
    """Where an address leads. Raises `RequestBlocked` for one that is not plain."""
    found = _ADDRESS.fullmatch(address)
    if found is None or "\\" in address or "#" in address:
        raise request_blocked("its address is not a plain http or https address", "address")
    scheme, host, port = found[1], normalise_host(found[2]), int(found[3] or _PORTS[found[1]])
    if not 0 < port < 65536:
        raise request_blocked("its address has a port that there is not", "address")
    return UrlOrigin(scheme, host, port)


def normalise_host(host: str) -> str:
    """A host in the one form that is compared. Raises `RequestBlocked` for an odd form."""
    host = host.lower()
    bare = host[1:-1] if host[:1] == "[" else host
    if ":" in bare or _NUMBER.fullmatch(bare.rpartition(".")[2]):  # as browsers tell an address from a name
        try:
            return str(ip_address(bare))
        except ValueError:
            raise request_blocked("its host is a number that is no usual IP address", "host") from None
    if not _NAME.fullmatch(host):
        raise request_blocked("its host is not a plain name", "host")
    return host


def refuse_other_origins(origin: UrlOrigin, reach: NetworkAccess, home: UrlOrigin) -> None:
    """Raises `RequestBlocked` for an origin that may not be reached, whatever its addresses are."""
    if home.scheme == "https" and origin.scheme != "https":
        raise request_blocked("it would leave https", "scheme")
    listed = any(_entry_matches(entry, origin) for entry in reach.hosts) if reach.hosts else origin == home
    if not listed:
        raise request_blocked("its host is not one that the tool may reach", "hosts")


async def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of a name, as this machine knows them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def check_addresses(host: str, port: int, reach: NetworkAccess, resolve: Resolver = resolve_host) -> list[str]:
    """The addresses of a host, all of them allowed. Connect to these and to nothing else.

    Raises `RequestBlocked` (`provider.fatal`), or `provider.transient` when the name is not known.
    """
    host = normalise_host(host)
    listed = {_entry_host(entry) for entry in reach.hosts}
    if host in METADATA_HOSTS and not (host in listed and reach.private_network):
        raise request_blocked("its host gives machines their credentials", "metadata")
    try:
        answers = [host] if _is_ip(host) else list(dict.fromkeys(await resolve(host, port)))
    except (OSError, UnicodeError):
        answers = []
    if not answers:
        fields = {"status": None, "reason": "dns", "sent": False}
        raise ProviderError("provider.transient", "no reply came: its name is not known", fields=fields)
    for answer in answers:
        _refuse_address(answer, reach, METADATA_HOSTS if host in METADATA_HOSTS else listed)
    return answers


def is_public(address: str) -> bool:
    """Whether an address is one of the internet's. An address with an interface (`fe80::1%eth0`) is not."""
    return "%" not in address and all(map(_is_public, embedded_addresses(ip_address(address))))


def embedded_addresses(address: IpAddress) -> Iterator[IpAddress]:
    """The v4 addresses that a v6 address stands for, or the address itself."""
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
    """`listed`: what may be reached although it gives machines their credentials."""
    if not reach.private_network and not is_public(answer):
        raise request_blocked("it would reach a private address, and `private_network` is not true", "private_network")
    for inside in embedded_addresses(ip_address(answer.partition("%")[0])):
        if (str(inside) in METADATA_HOSTS or _is_link_local(inside)) and str(inside) not in listed:
            raise request_blocked("it would reach an address that gives machines their credentials", "metadata")


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
    """The host of an entry of the list. None: it is none, or stands for many."""
    found = _ENTRY.fullmatch(entry.lower())
    try:
        return None if found is None or found[1].startswith("*") else normalise_host(found[1])
    except RequestBlocked:
        return None


def _is_ip(host: str) -> bool:
    return ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None
