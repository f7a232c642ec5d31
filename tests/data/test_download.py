import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.file_server import Fault, FileServer
from trainparity.data.datasets import _cifar10, _mnist
from trainparity.data.download import CIFAR10, MNIST, Source, fetch
from trainparity.data.errors import DataError
from trainparity.data.formats import read_cifar10, read_idx
from trainparity.params import Downloaded

CONTENT = bytes(range(256)) * 40


def source(files: dict[str, bytes], *mirrors: str) -> Source:
    return Source(files={n: hashlib.md5(c).hexdigest() for n, c in files.items()}, mirrors=mirrors)


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


@pytest.mark.parametrize("fault", ["none", "slow"])
def test_a_right_file_is_fetched_once(tmp_path: Path, fault: Fault) -> None:
    with FileServer({"a.bin": CONTENT}, fault).running() as server:
        for _ in range(2):
            [path] = fetch(source({"a.bin": CONTENT}, server.url), tmp_path)
            assert path.read_bytes() == CONTENT
        assert len(server.requests) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_a_broken_connection_is_gone_on_from(tmp_path: Path) -> None:
    with FileServer({"a.bin": CONTENT}, "cut").running() as server:
        wanted = source({"a.bin": CONTENT}, server.url)
        with pytest.raises(DataError, match=r"broke off after 5120 of 10240 bytes"):
            fetch(wanted, tmp_path)
        assert not (tmp_path / "a.bin").exists()
        [path] = fetch(wanted, tmp_path)
        assert server.requests == [None, "bytes=5120-"]
    assert path.read_bytes() == CONTENT


def test_a_damaged_part_of_an_earlier_try_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"something else entirely")
    with FileServer({"a.bin": CONTENT}).running() as server:
        [path] = fetch(source({"a.bin": CONTENT}, server.url), tmp_path)
    assert path.read_bytes() == CONTENT


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT[:-1])
    with FileServer({"a.bin": CONTENT}).running() as server:
        [path] = fetch(source({"a.bin": CONTENT}, server.url), tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("fault", ["forbidden", "truncated", "corrupt", "silent"])
def test_the_next_mirror_helps_out(tmp_path: Path, fault: Fault) -> None:
    bad, good = FileServer({"a.bin": CONTENT}, fault), FileServer({"a.bin": CONTENT})
    with bad.running(), good.running():
        [path] = fetch(source({"a.bin": CONTENT}, good.url), tmp_path, [bad.url], timeout_s=0.5)
    assert path.read_bytes() == CONTENT
    assert bad.requests and good.requests


def test_without_any_mirror_the_message_says_what_each_said_and_what_to_do(tmp_path: Path) -> None:
    with FileServer({"a.bin": CONTENT}, "corrupt").running() as corrupt:
        with FileServer({}).running() as gone:
            pass
        with pytest.raises(DataError) as caught:
            fetch(source({"a.bin": CONTENT}, corrupt.url), tmp_path, [gone.url])
    text = str(caught.value)
    assert f"{gone.url}a.bin: " in text and "refused" in text
    assert f"{corrupt.url}a.bin: wrong checksum: MD5 " in text
    assert str(tmp_path / "a.bin") in text and "dataset.name: digits" in text
    assert list(tmp_path.iterdir()) == []


def test_a_mirrors_password_is_not_told(tmp_path: Path) -> None:
    """Python's own error would quote it: it takes the password for a port."""
    with pytest.raises(DataError) as caught:
        fetch(
            source({"a.bin": CONTENT}),
            tmp_path,
            ["https://me:hidden@nowhere.invalid/", "https://hidden@nowhere.invalid/"],
        )
    assert "https://me:...@nowhere.invalid/a.bin: a mirror's address has no user" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_mnist_is_read_from_its_own_files(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28))
    files = {name: idx(a) for name, a in zip(MNIST.files, (images, np.arange(5)), strict=True)}
    with FileServer(files).running() as server:
        content = _mnist(Downloaded(name="mnist", mirrors=[server.url]), tmp_path, source(files))
    assert torch.equal(content.tensors["images"], torch.from_numpy(images.astype(np.uint8))[:, None])
    assert content.tensors["labels"].tolist() == [0, 1, 2, 3, 4]


def archive(batches: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_cifar10_is_read_from_its_own_archive(tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, (10, 3073)).astype(np.uint8)
    records[:, 0] = np.arange(10)
    batches = {f"data_batch_{i + 1}.bin": records[2 * i : 2 * i + 2].tobytes() for i in range(5)}
    [name] = CIFAR10.files
    files = {name: archive(batches)}
    with FileServer(files).running() as server:
        content = _cifar10(Downloaded(name="cifar10", mirrors=[server.url]), tmp_path, source(files))
    assert content.tensors["labels"].tolist() == list(range(10))
    assert torch.equal(content.tensors["images"].flatten(1), torch.from_numpy(records[:, 1:].copy()))
    (tmp_path / "partial.tar.gz").write_bytes(archive({k: v for k, v in batches.items() if "3" not in k}))
    with pytest.raises(DataError, match=r"partial.tar.gz: data_batch_3.bin is missing or damaged"):
        read_cifar10(tmp_path / "partial.tar.gz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"plain", "not a whole gzip file"),
        (idx(np.zeros((3, 2)))[:-9], "not a whole gzip file"),
        (gzip.compress(b"\0\0\x0d\x01\0\0\0\0", mtime=0), "not an idx file of bytes"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x05abc", mtime=0), r"3 bytes of data, its header says \[5\]"),
    ],
)
def test_a_file_that_is_no_idx_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"x.gz: {message}"):
        read_idx(path)
    with pytest.raises(DataError, match=r"x.gz: not a whole tar.gz|x.gz: data_batch_1.bin"):
        read_cifar10(path)
