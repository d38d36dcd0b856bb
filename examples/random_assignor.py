"""A custom assignor: every partition goes to a random member among those that subscribe to it.

Run it to see one assignment. To use it in a consumer, pass the class, an object, or the function
below; or give it a name for everybody by an entry point of your package:

    [project.entry-points."shoal.assignors"]
    random = "my_package.random_assignor:RandomAssignor"

after which ``"random"`` stands for it. All members of a group must offer an assignor of that name.
"""

from __future__ import annotations

from random import Random

from shoal.assign import (
    Assignment,
    Assignor,
    ClusterMetadata,
    GroupSubscription,
    Subscription,
    load,
    validate,
)
from shoal.types import TopicPartition


class RandomAssignor(Assignor):
    """The long form: a class with a name, and memory if it needs any.

    It is eager, which is the default: partitions change hands at will, and nobody is asked to give
    them up first.
    """

    name = "random"

    def __init__(self, seed: int | None = None) -> None:
        self._random = Random(seed)

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> dict[str, Assignment]:
        given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        subscribers: dict[str, list[str]] = {}
        for member_id, subscription in subscriptions.items():
            for topic in subscription.topics:
                subscribers.setdefault(topic, []).append(member_id)
        for topic, members in subscribers.items():
            # A topic without metadata has no partitions to give.
            for partition in range(metadata.partition_counts.get(topic, 0)):
                given[self._random.choice(members)].append(TopicPartition(topic, partition))
        return {member_id: Assignment(partitions) for member_id, partitions in given.items()}


def first_come(
    metadata: ClusterMetadata, subscriptions: GroupSubscription
) -> dict[str, list[TopicPartition]]:
    """The short form, a plain function: whoever is first takes all it subscribes to."""
    taken: set[str] = set()
    given: dict[str, list[TopicPartition]] = {}
    for member_id, subscription in subscriptions.items():
        free = [topic for topic in subscription.topics if topic not in taken]
        taken.update(free)
        given[member_id] = [
            TopicPartition(topic, partition)
            for topic in free
            for partition in range(metadata.partition_counts.get(topic, 0))
        ]
    return given


def main() -> None:
    metadata = ClusterMetadata({"orders": 4, "payments": 3})
    group = {
        "anna": Subscription(("orders", "payments")),
        "bert": Subscription(("orders",)),
        "cora": Subscription(("payments",)),
    }
    for assignor in load([RandomAssignor(seed=1), first_come]):
        print(assignor.name)
        result = validate(assignor, assignor.assign(metadata, group), metadata, group)
        for member_id, assignment in result.items():
            print(f"  {member_id}: {', '.join(map(str, assignment.partitions)) or 'nothing'}")


if __name__ == "__main__":
    main()
