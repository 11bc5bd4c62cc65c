"""Name the case that fails where one test tries many.

A test of its own for each case takes longer than the case, because every worker collects it and reports it.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*name: object) -> Iterator[None]:
    """Add the name to whatever is raised here."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(repr, name))}")
        raise
