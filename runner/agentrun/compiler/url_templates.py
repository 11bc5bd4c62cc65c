"""The URL of an HTTP tool: fixed text with templates. The messages about values are results that a model reads.

Rule 1  `{{ }}` is allowed only in the path and in the values of query parameters. Other tags are not allowed.
Rule 2  A value cannot leave its position: it is percent-encoded, and a path segment has no slash, is not empty and is
        not a dot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote

from agentrun.core import model_texts as texts

URL_TAG = re.compile(r"""\{\{(?:[^'"}]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\}(?!\}))*\}\}""", re.DOTALL)
_OTHER_TAG = re.compile(r"\{[{%#]|[%#}]\}")
_UNENCODED = "!$&'()*+,;=:@/?%-._~[]{}"
"""Characters of fixed text that are not percent-encoded."""
MAX_URL_LENGTH = 8192

RESERVED_HEADERS = frozenset(
    {
        *("connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers that control where a request goes and where it ends. Only agentrun sets them."""


class UnusableUrl(Exception):
    """Why a URL or a value in it cannot be used."""


def check_url_template(url: str) -> None:
    """Raises `UnusableUrl` if a template is in a place where it is not allowed."""
    _fill_template(url, lambda _: "x")


def render_url(url: str, query: Mapping[str, str], text: Callable[[str], str]) -> str:
    """Fill in a URL; `text` renders a template. Raises `UnusableUrl`."""
    base = _fill_template(url, text)
    pairs = [f"{percent_encode(name)}={percent_encode(text(value))}" for name, value in query.items()]
    if pairs:
        if base[-1] not in "?&":
            base += "&" if "?" in base else "?"
        base += "&".join(pairs)
    if len(base) > MAX_URL_LENGTH:
        raise UnusableUrl(texts.URL_TOO_LONG.format(MAX_URL_LENGTH))
    return base


def percent_encode(text: str) -> str:
    """Encode a text as a component of a URL."""
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise UnusableUrl(texts.URL_NOT_TEXT) from None


def _fill_template(url: str, text: Callable[[str], str]) -> str:
    parts: list[str] = []
    segments: list[int] = []
    end = 0
    for tag in URL_TAG.finditer(url):
        parts.append(_encode_fixed_text(url[end : tag.start()]))
        before = "".join(parts)
        value = text(tag[0])
        if "?" in before:
            if "=" not in before.rpartition("?")[2].rpartition("&")[2]:
                raise UnusableUrl("a template in the query must be a value, after `name=`")
        else:
            if "/" in value or "\\" in value:
                raise UnusableUrl(texts.URL_SLASH)
            if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
                raise UnusableUrl(texts.URL_CONTROL)
            segments.append(before.count("/"))
        parts.append(percent_encode(value))
        end = tag.end()
    parts.append(_encode_fixed_text(url[end:]))
    whole = "".join(parts)
    path = whole.partition("?")[0].split("/")
    for number in segments:
        if unquote(path[number]) in ("", ".", ".."):
            raise UnusableUrl(texts.URL_EMPTY_SEGMENT)
    return whole


def _encode_fixed_text(text: str) -> str:
    if _OTHER_TAG.search(text):
        raise UnusableUrl("only `{{ }}` is allowed in a URL")
    if "#" in text or "\\" in text or not all(map(str.isprintable, text)) or " " in text:
        raise UnusableUrl("a URL cannot have a fragment, a backslash or a space")
    return quote(text, safe=_UNENCODED)
