"""Values of every prefix of the texts read lately, so that a text that grows or changes is read from there on only."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class PrefixCache(Generic[T]):
    """One value per prefix of a sequence of ids. The prefixes used longest ago are dropped first.

    >>> cache = PrefixCache(100)
    >>> cache.extend([5, 7], [], ["of 5", "of 5 7"])
    >>> cache.known([5, 7, 9]), cache.known([5, 8])
    (['of 5', 'of 5 7'], ['of 5'])
    """

    def __init__(self, max_prefixes: int) -> None:
        self.max_prefixes = max_prefixes
        # (number of the prefix without its last id, that id) -> number of the prefix, value. 0 is the empty prefix.
        self._values: OrderedDict[tuple[int, int], tuple[int, T]] = OrderedDict()
        self._last_number = 0

    def known(self, ids: Sequence[int]) -> list[T]:
        """Return the values of ids[:1], ids[:2], ... up to the first prefix without one."""
        values = []
        number = 0
        for i in ids:
            if (number, i) not in self._values:
                break
            self._values.move_to_end((number, i))
            number, value = self._values[number, i]
            values.append(value)
        return values

    def extend(self, ids: Sequence[int], known: Sequence[T], new: Iterable[T]) -> None:
        """Store values of the prefixes of `ids` after the `known` ones, as `known` returned them."""
        number = 0
        for i in ids[: len(known)]:
            number, _ = self._values[number, i]
        for i, value in zip(ids[len(known) :], new, strict=False):
            self._last_number += 1
            self._values[number, i] = (self._last_number, value)
            number = self._last_number
        while len(self._values) > self.max_prefixes:
            self._values.popitem(last=False)
