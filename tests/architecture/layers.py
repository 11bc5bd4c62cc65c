"""The layers of `agentrun` from top to bottom: imports go downwards, packages of one layer do not import each other."""

LAYERS: list[set[str]] = [
    {"", "__main__", "vcr"},  # `agentrun` itself, the public surface: nothing of ours imports it
    {"cli"},
    {"testing"},
    {"engine"},
    {"tools", "cassette", "store", "report"},
    {"net"},
    {"compiler", "journal"},
    {"providers"},
    {"core", "spec"},
    {"distribution", "files", "credentials"},
    {"errors", "canonical_json", "wire", "secret", "redactor"},
]
GROUND = LAYERS[-1]
"""Single modules that everything stands on. These may know each other, as long as there is no cycle."""


def part(name: str) -> str:
    """`agentrun.core.state` is part of `core`."""
    return ([*name.split("."), ""])[1]


def layer(name: str) -> int | None:
    return next((rank for rank, parts in enumerate(LAYERS) if part(name) in parts), None)


def under(name: str, *packages: str) -> bool:
    """Whether a module is one of these packages or inside one."""
    return any(name == package or name.startswith(package + ".") for package in packages)
