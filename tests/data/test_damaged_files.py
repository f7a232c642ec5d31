"""Damaged and hostile data files: each is read, or refused in a sentence that names it; none ends in a traceback."""

import gzip
import io
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainparity.data.errors import DataError
from trainparity.data.formats import read_cifar10, read_idx
from trainparity.data.imagefolder import read_images

RECORD = 3073


def mutated(content: bytes, chance: random.Random, first: int) -> bytes:
    """Return a copy with one to three places damaged, most of them among the first bytes, which say how to read it."""
    damaged = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        position = chance.randrange(min(len(damaged), first) if chance.random() < 0.7 else len(damaged))
        match chance.randrange(5):
            case 0:
                damaged[position] ^= 1 << chance.randrange(8)
            case 1:
                damaged[position] = chance.choice([0, 0x7F, 0x80, 0xFF])
            case 2:
                damaged[position : position + 4] = chance.choice([b"\xff" * 4, b"\x7f" + b"\xff" * 3, bytes(4)])
            case 3:
                damaged[position:position] = chance.randbytes(chance.randint(1, 8))
            case 4:
                del damaged[position : position + chance.randint(1, 64)]
        damaged = damaged or bytearray(b"\0")
    return bytes(damaged)


def refused(path: Path, contents: Iterator[bytes], read: Callable[[], object]) -> int:
    """Read each content as a file; return how many were refused."""
    count = 0
    for content in contents:
        path.write_bytes(content)
        try:
            read()
        except DataError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error), error
            count += 1
    return count


def idx() -> bytes:
    return bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (5, 4, 4)) + bytes(range(80))


def test_no_damage_of_an_idx_file_ends_in_a_traceback(tmp_path: Path) -> None:
    path, chance = tmp_path / "x.gz", random.Random(0)
    inside = (gzip.compress(mutated(idx(), chance, 16), 1, mtime=0) for _ in range(400))
    outside = (mutated(gzip.compress(idx(), 1, mtime=0), chance, 10) for _ in range(200))
    for contents in (inside, outside):
        assert refused(path, contents, lambda: read_idx(path)) > 100


@pytest.mark.parametrize("header", [b"\x09" + (1).to_bytes(4) * 9, b"\x08" + bytes(4) + b"\xff" * 28])
def test_an_idx_file_of_no_data_or_of_too_many_dimensions_is_refused(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes([0, 0, 8]) + header))
    with pytest.raises(DataError, match=r"x\.gz: "):
        read_idx(tmp_path / "x.gz")


def test_more_data_than_the_header_says_is_not_unpacked(tmp_path: Path) -> None:
    """Of zeros, gzip holds a thousand times its own size."""
    with gzip.open(tmp_path / "x.gz", "wb", compresslevel=1) as file:
        file.write(idx())
        for _ in range(8):
            file.write(bytes(1 << 22))
    with pytest.raises(DataError, match=r"x\.gz: more than 80 bytes of data, its header says \[5, 4, 4\]"):
        read_idx(tmp_path / "x.gz")


def batches() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for number in range(1, 6):
        member = tarfile.TarInfo(f"cifar-10-batches-bin/data_batch_{number}.bin")
        member.size = RECORD
        yield member, bytes([number]) + bytes(RECORD - 1)


def archive(members: Iterator[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar file, not compressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_no_damage_of_an_archive_ends_in_a_traceback(form: int, tmp_path: Path) -> None:
    path, chance = tmp_path / "x.tar.gz", random.Random(form)
    long = tarfile.TarInfo("a/" * 120 + "long")  # a header of its own, in each form but the first
    long.pax_headers = {"comment": "x" * 50}
    before = [] if form == tarfile.USTAR_FORMAT else [(long, b"")]
    whole = archive(iter([*before, *batches()]), form)
    contents = (gzip.compress(mutated(whole, chance, 2600), 1, mtime=0) for _ in range(150))
    assert refused(path, contents, lambda: read_cifar10(path)) > 20


def hostile() -> dict[str, list[tuple[tarfile.TarInfo, bytes]]]:
    """Return members that are no plain files, each in the place of the first batch."""

    def member(kind: bytes, link: str = "", **pax: str) -> tarfile.TarInfo:
        found = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        found.type, found.linkname, found.pax_headers = kind, link, pax
        return found

    sparse = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(1 << 50), "GNU.sparse.numblocks": "1"}
    absolute = tarfile.TarInfo("/etc/data_batch_1.bin")
    return {
        "a link to nothing": [(member(tarfile.SYMTYPE, "nothing"), b"")],
        "a link outside": [(member(tarfile.SYMTYPE, "/etc/passwd"), b"")],
        "a hard link": [(member(tarfile.LNKTYPE, "../../etc/passwd"), b"")],
        "a link to itself": [(member(tarfile.SYMTYPE, "data_batch_1.bin"), b"")],
        "a device": [(member(tarfile.CHRTYPE), b"")],
        "a pipe": [(member(tarfile.FIFOTYPE), b"")],
        "a folder": [(member(tarfile.DIRTYPE), b"")],
        "a hole of a petabyte": [(member(tarfile.REGTYPE, **sparse), b"")],
        "an absolute path, empty": [(absolute, b"")],
    }


@pytest.mark.parametrize("kind", hostile())
def test_a_member_that_is_no_plain_file_is_no_batch(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(archive(iter([*hostile()[kind], *list(batches())[1:]])), 1))
    with pytest.raises(DataError, match=r"x\.tar\.gz: data_batch_1\.bin is missing or damaged"):
        read_cifar10(path)


FORMATS = {"png": "PNG", "gif": "GIF", "bmp": "BMP", "jpg": "JPEG", "tif": "TIFF", "webp": "WEBP", "ppm": "PPM"}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.filterwarnings("ignore")  # Pillow warns of what it reads all the same
def test_no_damage_of_an_image_ends_in_a_traceback(suffix: str, tmp_path: Path) -> None:
    path, chance, buffer = tmp_path / "class" / f"x.{suffix}", random.Random(0), io.BytesIO()
    path.parent.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, FORMATS[suffix])
    contents = (mutated(buffer.getvalue(), chance, 64) for _ in range(200))
    assert refused(path, contents, lambda: read_images(tmp_path, 8, 3)) > 20


def test_an_image_that_is_a_line_is_not_blown_up(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    Image.new("L", (60_000, 1)).save(tmp_path / "class/x.png")
    with pytest.raises(DataError, match=r"x\.png: .*60000 x 1"):
        read_images(tmp_path, 224, 3)
