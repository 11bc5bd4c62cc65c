"""Registries: things by name, and a name is given once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Things by name."""

    def __init__(self, what: str, things: Mapping[str, T] | Iterable[tuple[str, T]] = ()) -> None:
        self._what = what
        self._things: dict[str, T] = {}
        for name, thing in things.items() if isinstance(things, Mapping) else things:
            self.add(name, thing)

    def add(self, name: str, thing: T) -> None:
        """ValueError: there is one of that name."""
        if name in self._things:
            raise ValueError(f"there is a {self._what} {name!r} already")
        self._things[name] = thing

    def __getitem__(self, name: str) -> T:
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)
