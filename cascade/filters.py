"""Conditions on the attributes that documents have in a collection."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cascade.errors import FilterError

Value = str | float | bool
Attributes = Mapping[str, Value]


class Operation(StrEnum):
    """How an attribute is compared."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    NIN = "nin"


_COMPARE: Mapping[Operation, Callable[[Any, Any], bool]] = {
    Operation.EQ: lambda found, value: found == value,
    Operation.NE: lambda found, value: found != value,
    Operation.GT: lambda found, value: found > value,
    Operation.GTE: lambda found, value: found >= value,
    Operation.LT: lambda found, value: found < value,
    Operation.LTE: lambda found, value: found <= value,
    Operation.IN: lambda found, value: found in value,
    Operation.NIN: lambda found, value: found not in value,
}
_ORDER = (Operation.GT, Operation.GTE, Operation.LT, Operation.LTE)
_SETS = (Operation.IN, Operation.NIN)
_NEGATIVE = (Operation.NE, Operation.NIN)


@dataclass(frozen=True)
class Comparison:
    """One attribute against a value; a document without the attribute passes `ne` and `nin` only.

    `in` and `nin` take a tuple of values, the others one. Text and numbers are never equal and never in order.
    """

    key: str
    operation: Operation
    value: Value | tuple[Value, ...]

    def __post_init__(self) -> None:
        if (self.operation in _SETS) != isinstance(self.value, tuple):
            expected = "a list of values" if self.operation in _SETS else "one value"
            raise FilterError(f"filter on {self.key!r}: {self.operation} takes {expected}, got {self.value!r}")

    def matches(self, attributes: Attributes) -> bool:
        """Whether a document with these attributes passes."""
        if self.key not in attributes:
            return self.operation in _NEGATIVE
        found = attributes[self.key]
        if self.operation in _ORDER and isinstance(found, str) != isinstance(self.value, str):
            return False
        return _COMPARE[self.operation](found, self.value)


@dataclass(frozen=True)
class AllOf:
    """Every condition must hold; none is no condition."""

    filters: tuple["Filter", ...]

    def matches(self, attributes: Attributes) -> bool:
        """See Comparison."""
        return all(each.matches(attributes) for each in self.filters)


@dataclass(frozen=True)
class AnyOf:
    """One condition must hold."""

    filters: tuple["Filter", ...]

    def matches(self, attributes: Attributes) -> bool:
        """See Comparison."""
        return any(each.matches(attributes) for each in self.filters)


Filter = Comparison | AllOf | AnyOf
EVERYTHING = AllOf(())
