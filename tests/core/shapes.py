"""Runs of many shapes by name, used by the property tests of the core."""

from . import shapes_calls, shapes_run
from .shape_parts import SHAPES

__all__ = ["SHAPES", "shapes_calls", "shapes_run"]
