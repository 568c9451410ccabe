"""From samples to the entry of the StreamFlow file."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from streamflow_io.commands.storage import entry_yaml
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.errors import Source
from streamflow_io.hints.yaml_files import parse_scheduler_config
from streamflow_io.storage.probe.evaluation import (
    LoadLevel,
    Measurement,
    ProbeTransfer,
    Sample,
    entry_fields,
    round_down,
    storage_entry,
    warnings,
)
from streamflow_io.storage.probe.mounts import MountPoint

MB = 10**6
LOCAL = MountPoint("/scratch", "ext4")
BANDWIDTHS = st.floats(1e-6, 1e9)


def sample(writers: int, bandwidth: float, seconds: float = 1.0) -> Sample:
    share = round(bandwidth * MB * seconds / writers)
    return Sample(tuple(ProbeTransfer(5.0, 5.0 + seconds, share) for _ in range(writers)))


def measurement(
    writes: list[float], reads: list[float], mount: MountPoint = LOCAL, path: str = "/scratch/me"
) -> Measurement:
    levels = tuple(
        LoadLevel(sample(2**n, write), sample(2**n, read))
        for n, (write, read) in enumerate(zip(writes, reads, strict=True))
    )
    return Measurement(path, mount, "direct", 10**12, 5.0, levels)


def test_bandwidth_is_from_the_first_start_to_the_last_end() -> None:
    both = Sample((ProbeTransfer(1.0, 2.0, 10 * MB), ProbeTransfer(1.5, 3.0, 30 * MB)))
    assert (both.bytes, both.seconds, both.bandwidth) == (40 * MB, 2.0, 20.0)
    assert [each.bandwidth for each in both.transfers] == [10.0, 20.0]


@given(BANDWIDTHS)
def test_round_down_never_promises_more(bandwidth: float) -> None:
    rounded = round_down(bandwidth)
    assert 0.9 * bandwidth < rounded <= bandwidth
    assert float(f"{rounded:.1e}") == rounded
    assert round_down(rounded) == rounded


def test_entry_has_the_best_of_each_direction() -> None:
    entry = storage_entry(measurement([300, 455, 400, 200], [100, 200, 390, 479]))
    assert entry == StorageConfig(name="scratch", path="/scratch/me", scope="node", write=450, read=470)


def test_congestion_does_not_lower_the_entry() -> None:
    measured = measurement([40, 35, 30, 20], [80, 80, 80, 80])
    assert storage_entry(measured).write == 40
    assert warnings(measured) == ()


@pytest.mark.parametrize(
    ("mount", "path", "name"),
    [
        (MountPoint("/mnt/fast ssd", "xfs"), "/mnt/fast ssd/a", "fast ssd"),
        (MountPoint("/", "ext4"), "/home/me/work", "work"),
        (MountPoint("/", "ext4"), "/", "root"),
    ],
)
def test_name_is_that_of_the_mount_point_or_of_the_directory(mount: MountPoint, path: str, name: str) -> None:
    assert storage_entry(measurement([1], [1], mount, path)).name == name


@given(
    st.text("abc :#{}[],&*!|>'\"%@`-\\\tüß\n", min_size=1).filter(str.strip),
    st.lists(BANDWIDTHS, min_size=1, max_size=4),
    st.sampled_from(["ext4", "nfs4", "fuse.sshfs"]),
)
@example(": a", [1.0], "ext4")
@example("yes", [1.0], "ext4")
def test_any_entry_can_be_pasted(name: str, bandwidths: list[float], file_system: str) -> None:
    entry = storage_entry(
        measurement(bandwidths, bandwidths, MountPoint(f"/mnt/{name}", file_system), f"/mnt/{name}/x")
    )
    text = entry_yaml(entry)
    pasted = YAML(typ="safe", pure=True).load(text)
    assert pasted == {"storages": [entry_fields(entry)]}
    assert parse_scheduler_config(pasted, Source("streamflow.yml")).storages == (entry,)


def test_a_burst_does_not_count() -> None:
    """The time was over after 0.3 MB: that they are read back at 500 MB/s says nothing of the storage."""
    levels = (
        LoadLevel(sample(1, 0.3), sample(1, 500, 0.0006)),
        LoadLevel(sample(2, 0.3), sample(2, 5, 0.06)),
    )
    measured = Measurement("/slow", LOCAL, "direct", 256 * MB, 1.0, levels)
    assert measured.best_read.bandwidth == pytest.approx(5)
    assert any("read sample" in text and "--seconds" in text for text in warnings(measured))


def test_a_short_sample_with_all_bytes_counts() -> None:
    level = LoadLevel(sample(1, 5000, 0.05), sample(1, 1000, 0.25))
    measured = Measurement("/fast", LOCAL, "direct", 256 * MB, 5.0, (level,))
    assert measured.best_write is level.write
    assert [text for text in warnings(measured) if "--bytes" in text] == [
        "The best write sample took 0.05 s only: a higher --bytes gives longer ones."
    ]


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (measurement([9], [9], MountPoint("/dev/shm", "tmpfs"), "/dev/shm"), "is memory (tmpfs)"),
        (measurement([9], [9], MountPoint("/gpfs", "gpfs")), "Measured from this node only"),
        (measurement([5, 9], [9, 9]), "Write bandwidth still rises with 2 writers"),
        (Measurement("/x", LOCAL, "buffered", MB, 5.0, measurement([9], [9]).levels), "no direct I/O"),
    ],
)
def test_warnings(measured: Measurement, words: str) -> None:
    (warning,) = warnings(measured)
    assert words in warning
