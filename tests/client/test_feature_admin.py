"""What all brokers of a cluster have in common."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal import Admin
from shoal.client.feature_admin import in_common
from shoal.testing.broker import Broker

SPAN = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda two: (min(two), max(two)))
OFFERS = st.lists(st.dictionaries(st.sampled_from("abcd"), SPAN), min_size=1, max_size=4)


@given(OFFERS)
def test_a_version_is_in_common_if_and_only_if_every_broker_has_it(
    offers: list[dict[str, tuple[int, int]]],
) -> None:
    found = in_common(offers)
    for name in "abcd":
        for version in range(10):
            everywhere = all(
                name in one and one[name][0] <= version <= one[name][1] for one in offers
            )
            here = name in found and found[name][0] <= version <= found[name][1]
            assert here == everywhere


def test_our_broker_says_its_features_and_apis() -> None:
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.describe_features()
    levels = {one.name: (one.level, one.supported) for one in found.features}
    assert levels["transaction.version"] == (2, (0, 2))
    assert levels["metadata.version"][0] is not None
    assert found.apis[18] == (0, 4)
