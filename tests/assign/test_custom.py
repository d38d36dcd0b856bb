"""The worked example of a custom assignor, by every way to name one."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.random_assignor import RandomAssignor, first_come, main
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign import ClusterMetadata, RebalanceProtocol, Subscription, load, validate

TOPICS = ("a", "b", "c", "d")


@given(
    counts=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9)),
    lists=st.lists(st.sets(st.sampled_from(TOPICS)), min_size=1, max_size=6),
    seed=st.integers(),
)
def test_the_random_assignor_honours_subscriptions_and_gives_everything(
    counts: dict[str, int], lists: list[set[str]], seed: int
) -> None:
    metadata = ClusterMetadata(counts)
    group = {f"m{n}": Subscription(sorted(topics)) for n, topics in enumerate(lists)}
    assignor = RandomAssignor(seed)
    result = validate(assignor, assignor.assign(metadata, group), metadata, group)
    wanted = set().union(*lists)
    expected = sum(count for topic, count in counts.items() if topic in wanted)
    assert sum(len(assignment.partitions) for assignment in result.values()) == expected


def test_the_example_prints_an_assignment_for_each_form(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert capsys.readouterr().out.splitlines()[::4] == ["random", "first_come"]


def test_class_object_and_function_may_stand_side_by_side() -> None:
    assignors = load(["sticky", RandomAssignor, first_come])
    assert [assignor.name for assignor in assignors] == ["sticky", "random", "first_come"]
    assert assignors[1].supported_protocols == (RebalanceProtocol.EAGER,)


def test_an_installed_package_may_offer_assignors_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "guests-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[shoal.assignors]\n"
        "random = examples.random_assignor:RandomAssignor\n"
        "greedy = examples.random_assignor:first_come\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    by_class, by_function = load(["random", "greedy"])
    assert isinstance(by_class, RandomAssignor)
    # A function answers to the name it was offered under.
    assert by_function.name == "greedy"
