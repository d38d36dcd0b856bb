"""Leader epochs: who wrote which offsets, and where a client's history ends."""

from __future__ import annotations

from shoal.log.checkpoints import decode_epochs, encode_epochs
from shoal.log.epochs import LeaderEpochs


def test_the_end_of_an_epoch_is_the_start_of_the_next_larger_one() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 50), (4, 80)])
    assert epochs.end_offset_for(4, 100) == (4, 100)
    assert epochs.end_offset_for(3, 100) == (3, 80)
    assert epochs.end_offset_for(2, 100) == (1, 50)
    assert epochs.end_offset_for(1, 100) == (1, 50)
    assert epochs.end_offset_for(0, 100) == (0, 0)
    assert epochs.end_offset_for(5, 100) is None
    assert LeaderEpochs().end_offset_for(0, 0) is None


def test_an_epoch_that_wrote_nothing_is_forgotten() -> None:
    epochs = LeaderEpochs([(0, 0)])
    assert epochs.assign(1, 10)
    assert not epochs.assign(1, 20), "known already"
    assert epochs.assign(2, 10)
    assert epochs.entries == [(0, 0), (2, 10)]


def test_an_offset_belongs_to_the_epoch_that_started_last_before_it() -> None:
    epochs = LeaderEpochs([(1, 5), (3, 50)])
    assert [epochs.epoch_at(offset) for offset in (4, 5, 49, 50, 99)] == [None, 1, 1, 3, 3]


def test_cutting_the_end_keeps_the_newest_epoch_that_had_begun() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 50), (4, 80)])
    assert not epochs.cut_end(80)
    assert epochs.cut_end(79)
    assert epochs.latest == 3


def test_cutting_the_start_moves_the_first_entry() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 50), (4, 80)])
    assert epochs.cut_start(60)
    assert epochs.entries == [(3, 60), (4, 80)]
    assert not epochs.cut_start(60)
    assert not epochs.cut_start(10)
    assert epochs.cut_start(500)
    assert epochs.entries == [(4, 500)]


def test_the_file_is_kafkas() -> None:
    assert encode_epochs([(1, 0), (3, 50)]) == b"0\n2\n1 0\n3 50\n"
    assert decode_epochs(b"0\n2\n1 0\n3 50\n") == [(1, 0), (3, 50)]
    for damaged in (b"", b"0\n", b"0\n2\n1 0\n", b"1\n0\n", b"0\nx\n", b"0\n1\n1 a\n", b"\xff\xfe"):
        assert decode_epochs(damaged) is None
    assert decode_epochs(b"0\n2\n3 0\n1 50\n") is None, "epochs never go back"
    assert decode_epochs(b"0\n1\n-1 0\n") is None
    assert decode_epochs(None) is None
