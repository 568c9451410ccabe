"""The bounds of a writer, with a clock that is not real."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.storage.probe.measuring import ALIGNMENT, BLOCK_SECONDS, LARGEST_BLOCK, next_block, transfer

MB = 10**6


class Storage:
    """A storage whose bandwidth is a function of time."""

    def __init__(self, bandwidth: Callable[[float], float], size: int = 10**15) -> None:
        self.bandwidth = bandwidth
        self.size = size
        self.now = 1000.0
        self.blocks: list[tuple[int, int, float]] = []

    def clock(self) -> float:
        return self.now

    def move(self, offset: int, size: int) -> int:
        moved = min(size, self.size - offset)
        seconds = moved / (self.bandwidth(self.now - 1000.0) * MB)
        self.now += seconds
        self.blocks.append((offset, moved, seconds))
        return moved


@given(st.floats(0.01, 10_000), st.integers(1, 8192), st.floats(0.1, 20))
def test_bounds_hold(bandwidth: float, blocks: int, seconds: float) -> None:
    storage = Storage(lambda _: bandwidth)
    moved = transfer(storage.move, blocks * ALIGNMENT, seconds, storage.clock)
    start, end, done = moved.start, moved.end, moved.bytes
    assert start == 1000.0
    assert end == storage.now
    assert done == sum(size for _, size, _ in storage.blocks) <= blocks * ALIGNMENT
    assert done == blocks * ALIGNMENT or end - start >= seconds
    smallest = ALIGNMENT / (bandwidth * MB)
    # With a steady bandwidth the last block ends with the time, unless not even the smallest block does.
    assert end - start <= seconds + 1.01 * smallest
    assert all(size % ALIGNMENT == 0 and offset % ALIGNMENT == 0 for offset, size, _ in storage.blocks)


@given(st.floats(1, 5000), st.floats(0.01, 1), st.floats(0, 5))
def test_a_storage_that_gets_slow_delays_by_one_block(before: float, after: float, when: float) -> None:
    """A full cache does this: the block that was begun is the last one."""
    storage = Storage(lambda now: before if now < when else after)
    moved = transfer(storage.move, 10**13, 5.0, storage.clock)
    assert moved.end - storage.blocks[-1][2] - moved.start < 5.0
    slow = [size for offset, size, seconds in storage.blocks if seconds > 2 * BLOCK_SECONDS]
    smallest = ALIGNMENT / (after * MB)
    assert len(slow) <= 1 or smallest > BLOCK_SECONDS


def test_a_fast_storage_gets_large_blocks() -> None:
    storage = Storage(lambda _: 2000)
    transfer(storage.move, 2**30, 5.0, storage.clock)
    assert len(storage.blocks) < 25
    assert max(moved for _, moved, _ in storage.blocks) == LARGEST_BLOCK


def test_end_of_file() -> None:
    storage = Storage(lambda _: 100, size=3 * ALIGNMENT)
    assert transfer(storage.move, 10**9, 5.0, storage.clock).bytes == 3 * ALIGNMENT
    assert transfer(storage.move, 0, 5.0, storage.clock).bytes == 0


@given(st.integers(1, LARGEST_BLOCK), st.floats(0, 1e6), st.floats(-10, 100))
def test_next_block(size: int, seconds: float, remaining: float) -> None:
    block = next_block(size, seconds, remaining)
    assert block % ALIGNMENT == 0
    assert ALIGNMENT <= block <= LARGEST_BLOCK
