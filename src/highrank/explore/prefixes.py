"""A cache of one value per prefix of recently read texts, so that only the changed end of a text is read again."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class PrefixCache(Generic[T]):
    """One value per prefix of a sequence of ids. Those of the text used longest ago are dropped first, from its end.

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
        keys = self._keys(ids)
        for key in reversed(keys):  # of prefixes used at the same time, the longest is dropped first
            self._values.move_to_end(key)
        return [self._values[key][1] for key in keys]

    def extend(self, ids: Sequence[int], known: Sequence[T], new: Iterable[T]) -> None:
        """Store values of the prefixes of `ids` after the `known` ones, as `known` returned them."""
        keys = self._keys(ids)
        number = self._values[keys[-1]][0] if keys else 0
        for i, value in zip(ids[len(known) :], new, strict=False):
            self._last_number += 1
            self._values[number, i] = (self._last_number, value)
            number = self._last_number
        self.known(ids)
        while len(self._values) > self.max_prefixes:
            self._values.popitem(last=False)

    def _keys(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return the keys of the known prefixes of `ids`, the shortest first."""
        keys = []
        number = 0
        for i in ids:
            if (number, i) not in self._values:
                break
            keys.append((number, i))
            number, _ = self._values[number, i]
        return keys
