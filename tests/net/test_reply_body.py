"""Reply bodies give the same result however they are split, and invalid bytes are an error of their reply."""

import gzip
import zlib
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agentrun.errors import ProviderError
from agentrun.net.reply_body import ReplyBody

FORMS: dict[str, Callable[[bytes], bytes]] = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}


def read_body(data: bytes, cuts: list[int], *fields: tuple[str, str]) -> bytes | str:
    """The body, or the code of what was wrong with it."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    try:
        body = ReplyBody(fields)
        heard: list[bytes] = []
        for start, end in pairwise(places):
            body.feed(data[start:end], heard.append)
        whole = body.end(200)
    except ProviderError as error:
        return error.code
    assert b"".join(heard) == whole
    return whole


@given(st.sampled_from(sorted(FORMS)), st.binary(max_size=500), st.lists(st.integers(min_value=0), max_size=20))
def test_body_is_the_same_for_any_split(form: str, data: bytes, cuts: list[int]) -> None:
    packed = FORMS[form](data)
    fields = ("content-encoding", form), ("content-length", str(len(packed)))
    assert read_body(packed, cuts, *fields) == data


@given(
    st.binary(max_size=500),
    st.lists(st.integers(min_value=0), max_size=5),
    st.sampled_from(["", "identity", "gzip", "deflate", "br", "\0"]),
    st.sampled_from(["application/json", "text/event-stream", "text/plain"]),
)
def test_any_bytes_give_a_body_or_a_provider_error(data: bytes, cuts: list[int], encoding: str, kind: str) -> None:
    found = read_body(data, cuts, ("content-encoding", encoding), ("content-type", kind))
    assert isinstance(found, bytes) or found in ("provider.decode", "provider.zero_output")
    assert found == read_body(data, [], ("content-encoding", encoding), ("content-type", kind))


@given(st.binary(min_size=1, max_size=300), st.integers(min_value=1))
def test_cut_gzip_body_is_zero_output(data: bytes, kept: int) -> None:
    packed = gzip.compress(data)
    cut = packed[: kept % len(packed)]
    assert read_body(cut, [], ("content-encoding", "gzip")) == ("provider.zero_output" if cut else b"")
