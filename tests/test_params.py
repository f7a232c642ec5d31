import copy
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainparity import workloads
from trainparity.params import load, parse
from trainparity.validation import ParamsError, Section, read_yaml, validate

ROOT = Path(__file__).parents[1]
CONTENT = read_yaml(ROOT / "params.yaml")


def message(change: Callable[[dict[str, Any]], object]) -> str:
    content = copy.deepcopy(CONTENT)
    change(content)
    with pytest.raises(ParamsError) as caught:
        parse(content, Path("params.yaml"))
    return str(caught.value)


@pytest.mark.parametrize("path", [ROOT / "params.yaml", *sorted(ROOT.glob("studies/*/params.yaml"))], ids=str)
def test_the_projects_own_params_are_valid(path: Path) -> None:
    for scale in [None, *load(path).scales]:
        params = load(path, scale)
        assert params.parallel is None or params.parallel in params.configs
        for reference in params.references:
            workload = params.workload_of(reference)
            workloads.load(workload.name, workload.options, path)


def test_the_default_has_the_eight_configurations_each_compared_with_the_reference() -> None:
    params = load(ROOT / "params.yaml")
    assert list(params.configs) == [
        "cpu",
        "mps",
        "cuda-single",
        "dp",
        "ddp",
        "gradaccum",
        "fsdp-offload",
        "compiled",
    ]
    held = {pair.right for pair in params.pairs.values() if pair.left == "reference"}
    assert held == {*params.configs, "counterpart"}
    assert ("ddp", "gradaccum") in {(pair.left, pair.right) for pair in params.pairs.values()}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda c: c.update(parallel="dpp"),
            r"^params.yaml: parallel: 'dpp' is not one of cpu, .*; did you mean ddp\?$",
        ),
        (
            lambda c: c.update(accelerator="tpu"),
            r"^params.yaml: accelerator: 'tpu' is not one of auto, cpu, mps, cuda",
        ),
        (lambda c: c.update(runtime="dokcer"), r"^params.yaml: runtime: 'dokcer' is not one of host"),
        (
            lambda c: c.update(seed=1),
            r"^params.yaml: seed: unknown key: 'seed' is not one of scale, scales, parallel, ",
        ),
        (lambda c: c.pop("train"), r"^params.yaml: train: missing; it has no default$"),
        (
            lambda c: c["train"].update(epoch=2),
            r"^params.yaml: train.epoch: unknown key: .* did you mean epochs\?$",
        ),
        (
            lambda c: c["train"].update(epochs="2"),
            r"^params.yaml: train.epochs: '2': input should be a valid integer$",
        ),
        (
            lambda c: c["train"].update(epochs=0),
            r"^params.yaml: train.epochs: 0: input should be greater than",
        ),
        (
            lambda c: c["train"]["optimizer"].update(lr=-1.0),
            r"^params.yaml: train.optimizer.lr: -1.0: .*greater than 0$",
        ),
        (
            lambda c: c["train"]["optimizer"].update(momentum=0.9),
            r"^params.yaml: train.optimizer.momentum: momentum 0.9 with adam; only sgd takes a momentum$",
        ),
        (
            lambda c: c["dataset"].update(name="minst"),
            r"^params.yaml: dataset.name: 'minst' .* did you mean mnist\?$",
        ),
        (
            lambda c: c["dataset"].update(limti=3),
            r"^params.yaml: dataset.limti: unknown key: .* did you mean limit\?$",
        ),
        (lambda c: c["dataset"].pop("name"), r"^params.yaml: dataset.name: missing"),
        (
            lambda c: c["configs"].update(DDP={}),
            r"^params.yaml: configs.DDP: 'DDP' is no name; allowed: words of lower-case letters .*$",
        ),
        (
            lambda c: c["configs"].update({"d" * 101: {}}),
            r"^params.yaml: configs.d+: 'd+' is no name; allowed: words .*, of 100 characters at most$",
        ),
        (
            lambda c: c.update(configs={}, pairs={}, parallel=None),
            r"^params.yaml: configs: empty; allowed: at least 1$",
        ),
        (
            lambda c: c.update(dataset={"name": "fake", "shape": [1] * 9, "size": 3}),
            r"^params.yaml: dataset.shape: .*; allowed: at most 8$",
        ),
        (
            lambda c: c["configs"]["ddp"].update(strategy="dpd"),
            r"^params.yaml: configs.ddp.strategy: 'dpd' is not one of single, .*, ddp, .*; did you mean ddp",
        ),
        (
            lambda c: c["configs"]["ddp"].update(loader={"worker": 2}),
            r"^params.yaml: configs.ddp.loader.worker: unknown key: .* did you mean workers\?$",
        ),
        (
            lambda c: c.update(loading={"worker": [2]}),
            r"^params.yaml: loading.worker: unknown key: .* did you mean workers\?$",
        ),
        (
            lambda c: c.update(loading={"start_methods": ["fork", "span"]}),
            r"^params.yaml: loading.start_methods.1: 'span' is not one of fork, .* did you mean spawn\?$",
        ),
        (lambda c: c.update(step_deadline_s=1e300), "step_deadline_s: 1e\\+300: .*less than or equal to 10000000"),
        (
            lambda c: c["configs"]["ddp"].update(loader={"deadline_s": 0}),
            r"^params.yaml: configs.ddp.loader.deadline_s: 0: .*greater than 0$",
        ),
        (
            lambda c: c["configs"]["ddp"].update(world_size=3),
            r"^params.yaml: train.global_batch_size: 64 can't be divided into world_size 3 x accumulation_steps 1 = 3 "
            r"equal micro-batches \(configs.ddp\); allowed: a multiple of 3$",
        ),
        (
            lambda c: c["configs"]["cpu"].update(world_size=2),
            r"^params.yaml: configs.cpu.world_size: 2 with strategy single",
        ),
        (
            lambda c: c["configs"]["fsdp-offload"].update(memory_format="channels_last"),
            r"^params.yaml: configs.fsdp-offload.memory_format: channels_last with strategy fsdp; allowed: contiguous$",
        ),
        (
            lambda c: c["configs"]["cpu"].update(compile_blocks=True),
            r"^params.yaml: configs.cpu.compile_blocks: true with compile none; allowed: false$",
        ),
        (
            lambda c: c["configs"]["dp"].update(world_size=1),
            r"^params.yaml: configs.dp.world_size: 1 with strategy data_",
        ),
        (
            lambda c: c["configs"]["ddp"].update(offload="both"),
            r"^params.yaml: configs.ddp.offload: both with strategy ddp",
        ),
        (
            lambda c: c["pairs"]["ddp-gradaccum"].update(right="dddp"),
            r"^params.yaml: pairs.ddp-gradaccum.right: 'dddp' is not one of cpu, .*, counterpart; did you mean ddp\?$",
        ),
        (
            lambda c: c["pairs"]["ddp-gradaccum"].update(left="gradaccum"),
            r"^params.yaml: pairs.ddp-gradaccum.right: 'gradaccum' is compared with itself",
        ),
        (
            lambda c: c["pairs"]["ddp-gradaccum"].update(left="cpu", right="reference"),
            r"^params.yaml: pairs.ddp-gradaccum.right: 'reference' stands on the left",
        ),
        (
            lambda c: c["configs"]["ddp"].update(reference="wid"),
            r"^params.yaml: configs.ddp.reference: 'wid' is not one of fp32$",
        ),
        (
            lambda c: c["pairs"].update(ddp={"left": "cpu", "right": "ddp"}),
            r"^params.yaml: pairs.ddp: is the pair of the configuration ddp and its reference; choose another name$",
        ),
        (
            lambda c: c["configs"].update({"reference-fp32": c["configs"]["cpu"]}),
            r"^params.yaml: configs.reference-fp32: the pipeline's own runs are named so; choose another name$",
        ),
    ],
)
def test_a_mistake_is_named_by_file_key_value_and_what_is_allowed(
    change: Callable[[dict[str, Any]], object], expected: str
) -> None:
    assert re.search(expected, message(change), re.DOTALL), message(change)


def sections(of: type[Section] = Section) -> list[type[Section]]:
    """Return all sections of params.yaml and the built-in workloads' options."""
    found = [s for child in of.__subclasses__() for s in (child, *sections(child))]
    return [section for section in found if section.__module__.startswith("trainparity.")]


@pytest.mark.parametrize(
    ("section", "field"),
    [pytest.param(s, f, id=f"{s.__name__}.{f}") for s in sections() for f in s.model_fields],
)
def test_every_field_is_type_checked(section: type[Section], field: str) -> None:
    # No field of any section takes a set: YAML has none that JSON could hold.
    with pytest.raises(ParamsError) as caught:
        validate(section, {field: {1, 2}}, Path("p.yaml"), ("here",))
    lines = [line for line in str(caught.value).splitlines() if line.startswith(f"p.yaml: here.{field}: ")]
    assert lines and "missing" not in lines[0]


def test_a_literal_is_not_converted() -> None:
    for value in ("yes", 1, "true"):  # strict: YAML has already made booleans of what are ones
        assert message(lambda c, v=value: c["train"].update(shuffle=v)).startswith("params.yaml: train.shuffle: ")


def test_every_mistake_has_a_line() -> None:
    def change(content: dict[str, Any]) -> None:
        content["train"]["epochs"] = "two"
        content["configs"]["ddp"]["device"] = "gpu"

    assert len(message(change).splitlines()) == 2


LAUGHS = "a0: &a0 {{" + ", ".join(f"k{n}: 1" for n in range(10)) + "}}\n"
LAUGHS += "".join(f"a{n}: &a{n} {{0}}{', '.join([f'*a{n - 1}'] * 10)}{{1}}\n" for n in range(1, 10))
"""Ten lines of aliases to aliases, which stand for ten billion values; `{0}` and `{1}` put a line into brackets."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "p.yaml: not YAML"),
        ("train: {}\ntrain: {}", "key 'train' is given twice"),
        ("a: 2001-99-99", "p.yaml: not YAML"),
        ("a: !!python/object/apply:os.getcwd []", "p.yaml: not YAML"),
        ("a: &a [*a]", "p.yaml: its aliases stand for more than 100,000 values, or for themselves"),
        ("a: &a {b: *a}", "p.yaml: its aliases stand for more than"),
        (LAUGHS.format(*"[]"), "p.yaml: its aliases stand for more than"),
        (LAUGHS.format("{<<: [", "]}"), "too many keys are merged"),
        ("configs: {on: {}}", "p.yaml: configs: the key True (on, yes or true) is no text in YAML: put it into quotes"),
        ("configs: {no: {}}", "p.yaml: configs: the key False (off, no or false) is no text in YAML: put it into"),
        ("configs: {2.5: {}}", "p.yaml: configs: the key 2.5 is no text in YAML: put it into quotes"),
        ("1: 2", "p.yaml: the key 1 is no text in YAML: put it into quotes"),
        (r'"\e[2J": 1', r"p.yaml: \x1b[2J: unknown key"),
        ("\n".join(f"key-{number}: 1" for number in range(999)), "p.yaml: and "),
        (f"configs: {{{'x' * 101}: {{}}}}", "is no name; allowed: words of"),
        ("configs:", "p.yaml: configs: empty; allowed: keys and their values"),
        ("train: 5", "p.yaml: train: 5; allowed: keys and their values"),
        ("scales: [1]", "p.yaml: scales: [1]; allowed: keys and their values"),
        (b"train:\n  seed: 1  # \xe9t\xe9", "p.yaml: not UTF-8: byte 0xe9 in line 2"),
        ("- 1", "p.yaml: must be a mapping with the keys scale, scales, parallel"),
        (None, "p.yaml: no such file"),
    ],
)
def test_a_file_that_is_no_params_file_is_named(tmp_path: Path, text: str | bytes | None, expected: str) -> None:
    if text is not None:
        (tmp_path / "p.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ParamsError, match=re.escape(expected)):
        load(tmp_path / "p.yaml")


def test_a_key_that_is_no_text_is_one_mistake(tmp_path: Path) -> None:
    """What is below it, or follows from it, has no place that the user would find."""
    (tmp_path / "p.yaml").write_text("configs: {on: {strateg: ddp}}")
    with pytest.raises(ParamsError) as raised:
        load(tmp_path / "p.yaml")
    assert (
        len([line for line in str(raised.value).splitlines() if not line.endswith("missing; it has no default")]) == 1
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-5", 5e-5), ("1E3", 1000.0), ("-2.5e+1", -25.0), ("1e", "1e"), ("12", 12), ("017", "017"), ("1:30", "1:30"),
        ("1:30.5", "1:30.5"), ("1_000", 1000), ("0x1F", 31), ("0o17", 15), (".5", 0.5),
    ],
)  # fmt: skip
def test_numbers_are_read_as_dvc_writes_them(tmp_path: Path, text: str, value: object) -> None:
    (tmp_path / "p.yaml").write_text(f"a: {text}")
    assert read_yaml(tmp_path / "p.yaml") == {"a": value}


@given(
    st.fixed_dictionaries(
        {
            "strategy": st.sampled_from(["ddp", "fsdp", "data_parallel"]),
            "device": st.sampled_from(["auto", "cpu", "cuda", "mps"]),
            "precision": st.just("fp32"),
            "world_size": st.integers(2, 8),
            "accumulation_steps": st.integers(1, 4),
            "compile": st.sampled_from(["none", "default", "max-autotune"]),
        }
    ),
    st.integers(1, 256),
)
def test_exactly_the_batches_that_divide_are_accepted_and_survive_writing(config: dict[str, Any], batch: int) -> None:
    content = copy.deepcopy(CONTENT)
    content["configs"] = {"one": config}
    content["pairs"], content["parallel"] = {}, "one"
    content["train"]["global_batch_size"] = batch
    if batch % (config["world_size"] * config["accumulation_steps"]):
        with pytest.raises(ParamsError, match=r"train\.global_batch_size"):
            parse(content, Path("p.yaml"))
    else:
        params = parse(content, Path("p.yaml"))
        assert parse(yaml.safe_load(yaml.safe_dump(params.model_dump(mode="json"))), Path("p.yaml")) == params
        with pytest.raises(ValueError, match="frozen"):
            params.parallel = "other"  # type: ignore[misc]


def test_a_workload_is_named_by_entry_or_import_path_and_checks_its_options() -> None:
    assert type(workloads.load("tests.support.mlp:Mlp", {"hidden": 3})).__name__ == "Mlp"
    for name, options, expected in [
        (
            "ddmp",
            {},
            "workload.name: 'ddmp' is not one of toy-linear, ddpm, resnet, classifier, superres; did you mean ddpm?",
        ),
        (
            "ddpm",
            {"scale": "huge"},
            "params.yaml: workload.options.scale: 'huge' is not one of tiny, article",
        ),
        ("ddpm", {"size": 1}, "params.yaml: workload.options.size: unknown key"),
        ("resnet", {"depth": 34}, "params.yaml: workload.options.depth: 34 is not one of 18, 50, 101"),
        (
            "tests.nowhere:Mlp",
            {},
            "params.yaml: workload.name: 'tests.nowhere:Mlp' can't be imported: No module named",
        ),
        ("tests.support.mlp:nn", {}, "params.yaml: workload.name: 'tests.support.mlp:nn' is no subclass of"),
    ]:
        with pytest.raises(ParamsError, match=re.escape(expected)):
            workloads.load(name, options)


SCALED = CONTENT | {
    "scale": "small",
    "scales": {
        "small": {"train": {"max_steps": 2, "optimizer": {"lr": 0.5}}},
        "large": {"dataset": {"name": "mnist", "limit": 9}},
    },
}


def test_a_scale_changes_what_it_names_and_leaves_the_rest() -> None:
    base, small = parse(CONTENT, Path("p")).train, parse(SCALED, Path("p")).train
    assert (small.max_steps, small.optimizer.lr, small.optimizer.name) == (2, 0.5, base.optimizer.name)
    assert small.global_batch_size == base.global_batch_size


def test_a_scale_that_names_another_dataset_replaces_the_whole_section() -> None:
    large = parse(SCALED | {"scale": "large"}, Path("p"))
    assert large.dataset.model_dump() == {"name": "mnist", "mirrors": [], "limit": 9}


def test_an_unknown_scale_is_a_mistake_with_its_remedy() -> None:
    with pytest.raises(ParamsError, match=r"^p: scale: 'smal' is not one of small, large; did you mean small\?$"):
        parse(SCALED | {"scale": "smal"}, Path("p"))


def test_a_reference_lays_its_settings_over_the_training_of_all_that_is_compared_with_it() -> None:
    content = copy.deepcopy(CONTENT)
    content["references"] = {"wide": {"train": {"global_batch_size": 128}}}
    content["configs"]["ddp"]["reference"] = "wide"
    params = parse(content, Path("p"))
    assert params.train_of(params.reference_of("ddp")).global_batch_size == 128
    assert params.train_of(params.reference_of("dp")).global_batch_size == 64
    assert params.reference_configuration("wide").precision == "fp32"


@pytest.mark.parametrize(
    ("changes", "num_samples", "says"),
    [
        ({}, 64, None),
        ({"holdout": 1}, 64, "train.global_batch_size: 64, but there are 63 samples to train on, and 1 held out"),
        ({"holdout": 64}, 64, "train.holdout: 64 of 64 samples leaves none to train on; allowed: less"),
        ({}, 100, "references.wide.train.global_batch_size: 128, but there are 100 samples"),
    ],
)
def test_settings_that_ask_for_more_samples_than_there_are_are_named(
    changes: dict[str, Any], num_samples: int, says: str | None
) -> None:
    content = copy.deepcopy(CONTENT)
    content["train"] |= changes
    if num_samples == 100:
        content["references"] = {"wide": {"train": {"global_batch_size": 128}}}
    with nullcontext() if says is None else pytest.raises(ParamsError, match=f"^p: {re.escape(says)}"):
        parse(content, Path("p")).check_samples(num_samples, Path("p"))


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (
            {"precision": "fp32", "train": {"epochs": 0}},
            r"^params.yaml: references.wide.train.epochs: 0: Input should be greater than or equal to 1$",
        ),
        (
            {"precision": "fp32", "train": {"global_batch_size": 33}},
            r"^params.yaml: train.global_batch_size: 33 can't be divided into .* \(configs.ddp\)",
        ),
        (
            {"precision": "fp31"},
            r"^params.yaml: references.wide.precision: 'fp31' is not one of fp64, .*; did you mean fp",
        ),
    ],
)
def test_a_reference_that_does_not_fit_is_named(reference: dict[str, Any], expected: str) -> None:
    def change(content: dict[str, Any]) -> None:
        content["references"] = {"wide": reference}
        content["configs"]["ddp"]["reference"] = "wide"

    assert re.search(expected, message(change)), message(change)


def test_a_run_and_its_reference_have_one_precision() -> None:
    def change(content: dict[str, Any]) -> None:
        content["references"] = {"wide": {"precision": "bf16"}}
        content["configs"]["ddp"] |= {"reference": "wide", "precision": "fp16"}

    assert message(change) == (
        "params.yaml: configs.ddp.precision: 'fp16', but its reference wide is in bf16; "
        "a run and its reference have one precision"
    )


def test_one_line_is_a_whole_configuration() -> None:
    """Its strategy, device, precision, reference and pair follow; a reference in its precision is added."""
    content = copy.deepcopy(CONTENT)
    content["configs"] |= {"four": {"accumulation_steps": 4}, "half": {"precision": "bf16"}}
    before, params = parse(CONTENT, Path("p")), parse(content, Path("p"))
    four, half = params.configs["four"], params.configs["half"]
    assert (four.strategy, four.device, four.precision, four.compared_with) == ("single", "auto", "fp32", "fp32")
    assert (half.precision, half.compared_with) == ("bf16", "bf16")
    assert params.references.keys() - before.references.keys() == {"bf16"}
    assert params.reference_configuration("bf16").precision == "bf16"
    assert params.pairs.keys() - before.pairs.keys() == {"four", "half"}
    assert params.pairs["four"].model_dump() == {"left": "reference", "right": "four"}


def test_a_configuration_takes_its_references_precision() -> None:
    content = copy.deepcopy(CONTENT)
    content["references"] = {"coarse": {"precision": "bf16"}}
    content["configs"]["half"] = {"reference": "coarse", "compile": "default"}
    assert parse(content, Path("p")).configs["half"].precision == "bf16"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"offload": "activations"}, r"activations with activation_budget_mib"),
        ({"activation_checkpointing": True}, r"true with activation_budget_mib"),
        ({"compile": "default"}, r"default with activation_budget_mib; allowed: none"),
        ({"strategy": "data_parallel", "world_size": 2}, r"data_parallel with activation_budget_mib"),
    ],
)
def test_an_activation_budget_decides_alone(settings: dict[str, object], expected: str) -> None:
    assert re.search(expected, message(lambda c: c["configs"].update(cpu={"activation_budget_mib": 64} | settings)))


class Nothing(Section):
    """The options of a workload that has none."""


def test_a_key_where_none_is_known_is_no_list_that_ends_at_once() -> None:
    with pytest.raises(ParamsError, match=r"^p: workload\.options\.wdth: unknown key: 'wdth'; allowed: none$"):
        validate(Nothing, {"wdth": 3}, Path("p"), ("workload", "options"))
