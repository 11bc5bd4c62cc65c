"""`credential_texts`: the texts of tools and sinks that may contain secrets, which excludes URLs."""

from typing import Any

from agentrun.core.package import credential_texts

from ..packages import package
from .script import mcp_tool, tool
from .test_package_validation import HTTP, SHELL

AUTH = {"secret": "${KEY}", "header": "Authorization", "scheme": "Bearer"}
SINK: dict[str, Any] = {"kind": "http", "delivery": "required", "timeout": 1, "private_network": False}


def test_credential_texts_are_headers_env_and_auth_but_not_urls() -> None:
    given = package(
        tools={
            "a": {**HTTP, "url": "https://${HOST}/", "headers": {"x": "${H}"}, "auth": AUTH},
            "b": {**HTTP, "headers": {}, "auth": None},
            "c": {**SHELL, "env": {"A": "${E}"}},
            "d": mcp_tool("x", env={"B": "${F}"}, headers={"y": "${G}"}),
            "e": tool(),
        },
        sinks={
            "s": {**SINK, "url": "https://${HOST}/", "headers": {"z": "${S}"}, "auth": AUTH},
            "t": {"kind": "stdout", "delivery": "required", "timeout": 1},
        },
    )
    found = {name: [*credential_texts(part)] for name, part in (given.tools | given.sinks).items()}
    assert found == {
        "a": ["${H}", "${KEY}"],
        "b": [],
        "c": ["${E}"],
        "d": ["${G}", "${F}"],
        "e": [],
        "s": ["${S}", "${KEY}"],
        "t": [],
    }
