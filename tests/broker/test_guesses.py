"""How long an attempt waits after wrong passwords."""

from __future__ import annotations

from shoal.broker.guesses import Guesses


def test_guesses_of_one_address_at_one_name_get_slower_however_many_come_at_once():
    guesses = Guesses()
    looked_at = []
    for _ in range(200):  # connections at a time, for a minute
        for now in range(60):
            wait = guesses.turn_in("ada", "10.0.0.1", float(now))
            if wait is not None:
                looked_at.append(now + wait)
                guesses.was_wrong("ada", "10.0.0.1", now + wait)
    assert len(looked_at) < 30
    assert guesses.turn_in("ada", "10.0.0.2", 60.0) == 0.0
    assert guesses.turn_in("ben", "10.0.0.1", 60.0) == 0.0


def test_a_few_mistakes_are_free_and_the_right_password_ends_it():
    guesses = Guesses()
    for _ in range(5):
        assert guesses.turn_in("ada", "10.0.0.1", 0.0) == 0.0
        guesses.was_wrong("ada", "10.0.0.1", 0.0)
    assert guesses.turn_in("ada", "10.0.0.1", 0.0) == 0.0
    assert guesses.turn_in("ada", "10.0.0.1", 0.0) == 0.2
    guesses.was_right("ada", "10.0.0.1")
    assert guesses.turn_in("ada", "10.0.0.1", 0.0) == 0.0


def test_it_is_forgotten_after_a_minute_and_does_not_grow_without_end():
    guesses = Guesses()
    for _ in range(9):
        guesses.was_wrong("ada", "10.0.0.1", 0.0)
    assert guesses.turn_in("ada", "10.0.0.1", 61.0) == 0.0
    for number in range(20_000):
        guesses.was_wrong(f"user-{number}", "10.0.0.1", 100.0)
    assert len(guesses._tallies) == 10_000
