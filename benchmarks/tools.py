"""The programs that the workloads run, as `python tools.py NAME [ARGUMENT...]`; needs the standard library only.

They read and write front to back, in pieces. "Work" is CPU time of the process, not time that passes: two programs that
share a core need twice as long, so that a gain by overlap is one that real programs would have. Jobs that have a node
each in reality, and share one here, can wait instead (`chain`).
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

MEBIBYTE = 2**20
WAIT = "wait:"
ALL_CORES = "cores:"
_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1
_PIECE_BYTES = 2**18


def chain_source(chunks: int, chunk_bytes: int, work: Callable[[], None]) -> None:
    """Write chunks to standard output, each after some work."""
    for index in range(chunks):
        work()
        _write(chunk(index, chunk_bytes))


def chain_transform(chunk_bytes: int, work: Callable[[], None]) -> None:
    """Copy standard input to standard output, with every byte changed; some work for each chunk."""
    table = bytes(value ^ 0x5A for value in range(256))
    while chunk := sys.stdin.buffer.read(chunk_bytes):
        work()
        _write(chunk.translate(table))


def chain_sum(chunk_bytes: int, work: Callable[[], None]) -> None:
    """Print size and SHA-256 of standard input; some work for each chunk."""
    digest, size = hashlib.sha256(), 0
    while chunk := sys.stdin.buffer.read(chunk_bytes):
        work()
        digest.update(chunk)
        size += len(chunk)
    print(size, digest.hexdigest())


def fanout_source(files: int, file_bytes: int, interval: float) -> None:
    """Write files `NNN.part` to the current directory, one each `interval` seconds; waits in between."""
    start = time.monotonic()
    for index in range(files):
        time.sleep(max(0.0, start + (index + 1) * interval - time.monotonic()))
        Path(f"{index:03}.part").write_bytes(chunk(index, file_bytes))


def fanout_sum(path: str, work: float) -> None:
    """Print name and SHA-256 of a file; uses `work` CPU seconds, the start of the interpreter included."""
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    use_cpu(work - time.process_time())
    print(Path(path).name, digest)


def compute(number: int, work: float) -> None:
    """Print a line that follows from a number; uses `work` CPU seconds, the start of the interpreter included."""
    use_cpu(work - time.process_time())
    print(number, hashlib.sha256(str(number).encode()).hexdigest())


def checkpoint(address: str, size: int, path: str) -> None:
    """Write and sync `checkpoint.data`, made from the content of a file; print the SHA-256 of the bytes that are read
    back.

    :param address: of the server of the congested disk
    """
    data = _repeat(hashlib.shake_128(Path(path).read_bytes()).digest(_PIECE_BYTES), size)
    target = Path("checkpoint.data")
    with target.open("wb", buffering=0) as file, socket.socket(socket.AF_UNIX) as server:
        server.connect(socket_address(address))
        for start in range(0, size, _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            server.sendall(b"%d\n" % len(piece))
            if not server.recv(1):
                raise SystemExit("the server of the congested disk has ended")
            file.write(piece)
            # Not all at once in the end: writers at the same time get equal shares.
            os.fdatasync(file.fileno())
    print(hashlib.sha256(target.read_bytes()).hexdigest())


def read_ranges(path: str, block: int, wait: float) -> None:
    """Read the range of a file that each line of standard input says, `OFFSET LENGTH`, and print its CRC-32.

    :param block: bytes that are asked for at a time
    :param wait: seconds for each MiB, after it was read
    """
    buffer = memoryview(bytearray(block))
    print("ready", flush=True)
    for line in sys.stdin:
        offset, length = map(int, line.split())
        checksum, left = 0, length
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            while left and (count := file.readinto(buffer[: min(block, left)])):
                checksum, left = zlib.crc32(buffer[:count], checksum), left - count
        time.sleep(wait * length / MEBIBYTE)
        print(checksum, flush=True)


def socket_address(address: str) -> str:
    """The address of a Unix socket for the kernel; `@` begins an abstract one."""
    return "\0" + address[1:] if address.startswith("@") else address


def use_cpu(seconds: float) -> None:
    """Use some seconds of CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def use_all_cores(seconds: float) -> None:
    """Use some seconds of CPU time of each core."""
    children = []
    for _ in os.sched_getaffinity(0):
        if (child := os.fork()) == 0:
            use_cpu(seconds)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def work_of(text: str) -> Callable[[], None]:
    """Work on a chunk: `SECONDS` of CPU time, of each core with `cores:SECONDS`; `wait:SECONDS`: time that passes."""
    if text.startswith(ALL_CORES):
        return partial(use_all_cores, float(text.removeprefix(ALL_CORES)))
    if text.startswith(WAIT):
        return partial(time.sleep, float(text.removeprefix(WAIT)))
    return partial(use_cpu, float(text))


def chunk(index: int, size: int) -> bytes:
    """Bytes that differ from chunk to chunk."""
    return _repeat(hashlib.shake_128(index.to_bytes(8, "big")).digest(min(size, MEBIBYTE // 16)), size)


def _repeat(block: bytes, size: int) -> bytes:
    return (block * (size // len(block) + 1))[:size]


def _write(data: bytes | bytearray, descriptor: int = _STANDARD_OUTPUT) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def main(arguments: list[str]) -> None:
    match arguments:
        case ["chain-source", chunks, chunk_bytes, work]:
            chain_source(int(chunks), int(chunk_bytes), work_of(work))
        case ["chain-transform", chunk_bytes, work]:
            chain_transform(int(chunk_bytes), work_of(work))
        case ["chain-sum", chunk_bytes, work]:
            chain_sum(int(chunk_bytes), work_of(work))
        case ["fanout-source", files, file_bytes, interval]:
            fanout_source(int(files), int(file_bytes), float(interval))
        case ["fanout-sum", path, work]:
            fanout_sum(path, float(work))
        case ["compute", number, work]:
            compute(int(number), float(work))
        case ["checkpoint", address, size, path]:
            checkpoint(address, int(size), path)
        case ["read-ranges", path, block, wait]:
            read_ranges(path, int(block), float(wait))
        case _:
            raise SystemExit(f"tools.py: unknown tool or wrong number of arguments: {' '.join(arguments)}")


if __name__ == "__main__":
    main(sys.argv[1:])
