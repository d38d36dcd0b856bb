"""Leading by a node in the registry: one leader an epoch, and a former one is kept out."""

from __future__ import annotations

import pytest

from shoal.lab.registry.election import Candidate, epoch_path
from shoal.lab.registry.messages import Put
from tests.lab.registry_setting import Setting, User

PATH = "/leader"


class Broker:
    """A candidate that writes down what it was elected for."""

    def __init__(self, setting: Setting, name: str) -> None:
        self.epochs: list[int] = []
        self.user: User = setting.user(name, lambda _: self.candidate.changed())
        self.candidate = Candidate(self.user.client, PATH, on_elected=self.epochs.append)
        self.candidate.run()

    @property
    def epoch(self) -> int:
        return self.epochs[-1] if self.epochs else 0


def test_one_of_many_is_elected() -> None:
    setting = Setting()
    brokers = [Broker(setting, f"b{n}") for n in range(5)]
    setting.settle(200)
    assert sorted(broker.epochs for broker in brokers) == [[], [], [], [], [1]]
    assert setting.registry.data(epoch_path(PATH)) == 1


def test_another_is_elected_with_the_next_epoch_when_the_session_of_the_leader_ends() -> None:
    setting = Setting(session_timeout_ms=2_000)
    brokers = [Broker(setting, f"b{n}") for n in range(3)]
    setting.settle(200)
    leader = next(broker for broker in brokers if broker.epoch)
    leader.user.client.crash()
    setting.settle(1_000)
    assert max(broker.epoch for broker in brokers) == 1, "nobody can know yet"
    setting.settle(1_300)
    assert sorted(broker.epoch for broker in brokers) == [0, 1, 2]


def test_who_resigns_is_followed_at_once() -> None:
    setting = Setting()
    brokers = [Broker(setting, f"b{n}") for n in range(3)]
    setting.settle(200)
    leader = next(broker for broker in brokers if broker.epoch)
    leader.candidate.resign()
    setting.settle(100)
    assert max(broker.epoch for broker in brokers) == 2


def test_what_a_former_leader_writes_is_refused() -> None:
    setting = Setting(session_timeout_ms=2_000)
    brokers = [Broker(setting, f"b{n}") for n in range(2)]
    setting.settle(200)
    leader = next(broker for broker in brokers if broker.epoch)
    leader.user.client.cut(4_000)
    late = leader.user.ask(Put((("/o", 1),), guard=(epoch_path(PATH), 1)), survives=True)
    setting.settle(6_000)
    assert late == [False]
    assert setting.registry.data("/o") is None


@pytest.mark.parametrize("batch", range(2))
def test_an_epoch_never_has_two_leaders(batch: int) -> None:
    for seed in range(50 * batch, 50 * batch + 50):
        setting = Setting(seed, session_timeout_ms=1_500, lag_ms=seed % 4 * 50)
        brokers = [Broker(setting, f"b{n}") for n in range(4)]
        for _ in range(8):
            setting.settle(400)
            victim = brokers[int(setting.random.random() * 4)]
            if setting.random.random() < 0.5:
                victim.user.client.cut(int(setting.random.random() * 3_000))
            else:
                server = f"r{1 + int(setting.random.random() * 3)}"
                setting.registry.fail_server(server, 500)
        setting.settle(8_000)
        epochs = sorted(epoch for broker in brokers for epoch in broker.epochs)
        assert epochs == list(range(1, len(epochs) + 1)), seed
