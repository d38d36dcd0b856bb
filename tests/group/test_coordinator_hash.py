"""Java's maps, in the order in which a real JVM walks them."""

from __future__ import annotations

from shoal.group.coordinator.java_hash import JavaMap, java_order


def test_a_map_is_walked_as_java_walks_it() -> None:
    members: JavaMap[int] = JavaMap()
    for number in range(14):
        members.put(f"consumer-{number}", number)
    assert members.in_java_order() == [11, 10, 6, 5, 4, 3, 2, 13, 1, 12, 0, 9, 8, 7]
    assert members.first() == "consumer-11"


def test_equal_hashes_keep_the_order_in_which_they_came() -> None:
    assert java_order(["Aa", "BB", "C#"]) == ["Aa", "BB", "C#"]
    assert java_order(["C#", "Aa", "BB"]) == ["C#", "Aa", "BB"]


def test_a_map_that_has_grown_does_not_shrink() -> None:
    # 13 entries make 32 buckets of 16; with 2 left Java still walks 32.
    names = [f"consumer-{number}" for number in range(13)]
    grown: JavaMap[str] = JavaMap()
    for name in names:
        grown.put(name, name)
    kept = ["consumer-0", "consumer-9"]
    for name in names:
        if name not in kept:
            assert grown.take(name) == name
    assert grown.take("nobody") is None
    assert grown.in_java_order() == ["consumer-0", "consumer-9"]
    assert java_order(kept) == ["consumer-9", "consumer-0"]


def test_putting_a_key_again_keeps_its_place() -> None:
    members: JavaMap[int] = JavaMap()
    for key, value in (("Aa", 1), ("BB", 2), ("Aa", 3)):
        members.put(key, value)
    assert members.in_java_order() == [3, 2]


def test_an_empty_map_has_no_first() -> None:
    assert JavaMap[int]().first() is None
