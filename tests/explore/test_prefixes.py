"""The cache of values per prefix."""

from highrank.explore.prefixes import PrefixCache


def stored(cache, ids):
    known = cache.known(ids)
    cache.extend(ids, known, [tuple(ids[: n + 1]) for n in range(len(known), len(ids))])
    return known


def test_texts_share_their_common_prefix():
    cache = PrefixCache(100)
    assert stored(cache, [1, 2, 3]) == []
    assert stored(cache, [1, 2, 4]) == [(1,), (1, 2)]
    assert cache.known([1, 2, 3, 5]) == [(1,), (1, 2), (1, 2, 3)]


def test_the_same_words_in_another_order_are_other_prefixes():
    cache = PrefixCache(100)
    stored(cache, [1, 2])
    assert cache.known([2, 1]) == []


def test_the_longest_prefixes_of_the_text_used_longest_ago_are_dropped():
    cache = PrefixCache(4)
    stored(cache, [1, 2])
    stored(cache, [3, 4])
    cache.known([1, 2])
    stored(cache, [5])
    assert cache.known([1, 2]) == [(1,), (1, 2)]
    assert cache.known([3, 4]) == [(3,)]


def test_of_a_text_longer_than_the_cache_the_start_is_kept():
    cache = PrefixCache(2)
    stored(cache, [1, 2, 3])
    assert stored(cache, [1, 2, 3, 4]) == [(1,), (1, 2)]
