"""How large a checkpoint is, from what its ranks say."""

from trainer.slot.checkpoints.checkpoint_sizes import REMEMBERED, CheckpointSizes


def test_the_files_of_all_ranks_are_counted_and_those_of_one_name_once() -> None:
    sizes = CheckpointSizes()
    sizes.add(0, 0, {"model": 100, "shard-0": 20})
    assert sizes.bytes_of(0, 2) is None, "rank 1 may still save"
    sizes.add(0, 1, {"model": 100, "shard-1": 3})
    assert sizes.bytes_of(0, 2) == 123


def test_a_rank_without_files_adds_nothing_and_one_with_unknown_files_makes_the_size_unknown() -> None:
    sizes = CheckpointSizes()
    sizes.add(0, 0, {"model": 100})
    sizes.add(0, 1, {})
    assert sizes.bytes_of(0, 2) == 100
    sizes.add(1, 0, None)
    sizes.add(1, 1, {"model": 100})
    assert sizes.bytes_of(1, 2) is None


def test_old_sizes_are_forgotten() -> None:
    sizes = CheckpointSizes()
    for sequence in range(REMEMBERED + 1):
        sizes.add(sequence, 0, {"model": 1})
    assert (sizes.bytes_of(0, 1), sizes.bytes_of(1, 1)) == (None, 1)
