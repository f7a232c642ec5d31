import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from trainparity.data.datasets import prepare
from trainparity.data.errors import DataError
from trainparity.data.store import load
from trainparity.params import Digits, Fake, ImageFolder, Photographs


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    prepare(Digits(name="digits", limit=40), folder / "data", folder / "downloads")
    return folder / "data"


def test_digits_are_the_bundled_scans(digits: Path) -> None:
    dataset = load(digits)
    assert len(dataset) == 40 and dataset.manifest.real
    images = dataset.tensors["images"]
    assert images.shape == (40, 1, 8, 8) and images.dtype == torch.uint8
    assert int(images.max()) == 255 and int(images.min()) == 0
    assert dataset.tensors["labels"][:10].tolist() == list(range(10))


def test_all_digits_are_there_and_can_be_resized(tmp_path: Path) -> None:
    manifest = prepare(Digits(name="digits", image_size=28), tmp_path / "data", tmp_path)
    assert manifest.tensors["images"].shape == [1797, 1, 28, 28]


def test_preparing_twice_gives_the_same_bytes(digits: Path, tmp_path: Path) -> None:
    prepare(Digits(name="digits", limit=40), tmp_path / "again", tmp_path)
    for name in ("data.safetensors", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (digits / name).read_bytes()


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        (["measurements.csv"], "holds measurements.csv, which no prepared dataset has"),
        (["data.safetensors"], "holds no manifest.json"),
        (["data.safetensors", "manifest.json", "notes/1.txt"], "holds notes, which no prepared dataset has"),
    ],
)
def test_only_a_prepared_dataset_is_replaced(mine: list[str], said: str, tmp_path: Path) -> None:
    for name in mine:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text("mine")
    with pytest.raises(DataError, match=f"{tmp_path}/data: {said}"):
        prepare(Digits(name="digits", limit=4), tmp_path / "data", tmp_path)
    assert {(tmp_path / "data" / name).read_text() for name in mine} == {"mine"}


def test_an_empty_folder_and_a_damaged_dataset_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for limit in (4, 5):
        prepare(Digits(name="digits", limit=limit), tmp_path / "data", tmp_path)
        assert len(load(tmp_path / "data")) == limit
        (tmp_path / "data/manifest.json").write_text("{")


def test_fake_data_are_article_bs(tmp_path: Path) -> None:
    prepare(Fake(name="fake", shape=[8], size=8, seed=0), tmp_path / "data", tmp_path)
    torch.manual_seed(0)
    dataset = load(tmp_path / "data")
    assert torch.equal(dataset.tensors["images"], torch.rand(8, 8))
    assert not dataset.manifest.real


def test_a_batch_holds_the_samples_asked_for(digits: Path) -> None:
    dataset, wanted = load(digits), torch.tensor([7, 3, 3])
    batch = dataset.batch(wanted)
    assert batch["labels"].tolist() == [7, 3, 3] and torch.equal(batch["samples"], wanted)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest"])
def test_damage_is_found_and_named_before_use(digits: Path, tmp_path: Path, damage: str) -> None:
    for name in ("data.safetensors", "manifest.json"):
        (tmp_path / name).write_bytes((digits / name).read_bytes())
    path = tmp_path / "data.safetensors"
    content = path.read_bytes()
    match damage:
        case "flip":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "truncate":
            path.write_bytes(content[:-1])
        case "remove":
            path.unlink()
        case "manifest":
            path = tmp_path / "manifest.json"
            path.write_text("{")
    with pytest.raises(DataError, match=rf"{path.name}: .*dvc repro -f -s prepare"):
        load(tmp_path)


def picture(path: Path, size: tuple[int, int], colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def test_an_image_folder_is_read_in_order(tmp_path: Path) -> None:
    picture(tmp_path / "in/b/2.png", (40, 20), (0, 255, 0))
    picture(tmp_path / "in/a/1.png", (20, 30), (255, 0, 0))
    picture(tmp_path / "in/b/1.png", (10, 10), (0, 0, 255))
    (tmp_path / "in/b/notes.txt").write_text("no image")
    settings = ImageFolder(name="imagefolder", path=str(tmp_path / "in"), image_size=16)
    prepare(settings, tmp_path / "data", tmp_path)
    dataset = load(tmp_path / "data")
    assert dataset.tensors["labels"].tolist() == [0, 1, 1]
    assert dataset.tensors["images"].shape == (3, 3, 16, 16)
    assert dataset.tensors["images"][:, :, 8, 8].tolist() == [[255, 0, 0], [0, 0, 255], [0, 255, 0]]


def test_images_are_cropped_at_the_centre(tmp_path: Path) -> None:
    stripes = np.zeros((10, 30, 3), dtype=np.uint8)
    stripes[:, 10:20] = 200
    (tmp_path / "in/a").mkdir(parents=True)
    Image.fromarray(stripes).save(tmp_path / "in/a/1.png")
    settings = ImageFolder(name="imagefolder", path=str(tmp_path / "in"), image_size=10, channels=1)
    prepare(settings, tmp_path / "data", tmp_path)
    assert load(tmp_path / "data").tensors["images"].unique().tolist() == [200]


def test_hidden_folders_and_files_are_no_classes_and_no_samples(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/.ipynb_checkpoints/1.png", "a/._1.png", ".cache/1.png", "__MACOSX/a/1.png", "b/c/1.png"):
        picture(tmp_path / "in" / name, (8, 8), (1, 2, 3))
    prepare(ImageFolder(name="imagefolder", path=str(tmp_path / "in"), image_size=8), tmp_path / "data", tmp_path)
    assert load(tmp_path / "data").tensors["labels"].tolist() == [0, 1]


def test_a_class_that_is_there_twice_is_named(tmp_path: Path) -> None:
    picture(tmp_path / "in/a/1.png", (8, 8), (1, 2, 3))
    (tmp_path / "in/b").symlink_to("a")
    with pytest.raises(DataError, match=r"in/b is the same folder as .*in/a"):
        prepare(ImageFolder(name="imagefolder", path=str(tmp_path / "in")), tmp_path / "data", tmp_path)


def test_16_bit_images_keep_their_range(tmp_path: Path) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    ramp = np.repeat(np.linspace(0, 65535, 8).round().astype(np.uint16)[None], 8, 0)
    Image.fromarray(ramp).save(tmp_path / "in/a/1.png")
    settings = ImageFolder(name="imagefolder", path=str(tmp_path / "in"), image_size=8, channels=1)
    prepare(settings, tmp_path / "data", tmp_path)
    expected = torch.from_numpy((ramp / 257).round().astype(np.uint8))
    assert torch.equal(load(tmp_path / "data").tensors["images"][0, 0], expected)


def test_what_has_no_8_bits_or_bursts_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    settings = ImageFolder(name="imagefolder", path=str(tmp_path / "in"))
    Image.fromarray(np.ones((8, 8), dtype=np.float32)).save(tmp_path / "in/a/1.tiff")
    with pytest.raises(DataError, match=r"1.tiff: not a readable image: its values are floats"):
        prepare(settings, tmp_path / "data", tmp_path)
    picture(tmp_path / "in/a/1.tiff", (100, 100), (1, 2, 3))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Pillow refuses what is more than twice as large
    with pytest.raises(DataError, match=r"1.tiff: not a readable image: .*decompression bomb"):
        prepare(settings, tmp_path / "data", tmp_path)
    with pytest.raises(DataError, match=r"dataset fake takes 4.* GiB; this machine's memory.* lower dataset.size"):
        prepare(Fake(name="fake", shape=[1024, 1024], size=2**30), tmp_path / "data", tmp_path)


def test_a_manifest_that_disagrees_with_its_tensors_is_refused(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "data")
    manifest = tmp_path / "data/manifest.json"
    for old, new in (('"samples": 40', '"samples": 30'), ('"uint8"', '"int8"')):
        before = manifest.read_text()
        manifest.write_text(before.replace(old, new))
        with pytest.raises(DataError, match="its tensors are not those of its manifest"):
            load(tmp_path / "data")
        manifest.write_text(before)


@pytest.mark.parametrize("fault", ["unreadable", "empty", "missing"])
def test_a_bad_image_folder_is_named_and_leaves_the_old_data(digits: Path, tmp_path: Path, fault: str) -> None:
    folder, out = tmp_path / "in", tmp_path / "data"
    prepare(Digits(name="digits", limit=3), out, tmp_path)
    if fault != "missing":
        (folder / "a").mkdir(parents=True)
    if fault == "unreadable":
        (folder / "a/1.png").write_bytes(b"not a picture")
    expected = {
        "unreadable": "1.png: not a readable image",
        "empty": "in: no images",
        "missing": "in: no such folder",
    }
    with pytest.raises(DataError, match=expected[fault]):
        prepare(ImageFolder(name="imagefolder", path=str(folder)), out, tmp_path)
    assert len(load(out)) == 3
    assert [p.name for p in tmp_path.glob(".*")] == []


@pytest.mark.parametrize(("stride", "rows", "columns"), [(None, 4, 6), (50, 7, 11)])
def test_photographs_are_tiles_of_the_bundled_ones(tmp_path: Path, stride: int | None, rows: int, columns: int) -> None:
    prepare(Photographs(name="photographs", image_size=100, stride=stride), tmp_path / "data", tmp_path)
    dataset = load(tmp_path / "data")
    tiles, labels, each = dataset.tensors["images"], dataset.tensors["labels"], rows * columns
    assert tiles.shape == (2 * each, 3, 100, 100) and tiles.dtype == torch.uint8 and dataset.manifest.real
    assert labels.tolist() == [0] * each + [1] * each
    step = stride or 100
    for photograph, whole in enumerate(load_sample_images().images):
        for row, column in ((0, 0), (1, 2), (rows - 1, columns - 1)):
            expected = whole[row * step : row * step + 100, column * step : column * step + 100]
            tile = tiles[photograph * each + row * columns + column]
            assert np.array_equal(tile.permute(1, 2, 0).numpy(), expected)
