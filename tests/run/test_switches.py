import pytest

from trainparity.running import secrecy
from trainparity.running.command import Command
from trainparity.running.switches import Switches


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (
            "python train.py --lr 1e-3",
            "python train.py --lr 2e-3 --compile --bf16",
            ["--lr 1e-3 -> --lr 2e-3", "--compile", "--bf16"],
        ),
        (
            "python train.py --lr 1",
            "torchrun --nproc-per-node 2 train.py --lr 1 --accum 4",
            ["python train.py -> torchrun --nproc-per-node 2 train.py", "--accum 4"],
        ),
        ("A=1 python -m p.t a.yaml", "B=3 python -m p.t b.yaml -x", ["A=", "B=3", "a.yaml -> b.yaml", "-x"]),
        ("python train.py --a --b 1", "python train.py --b 1", ["without --a"]),
        ("python train.py --a 1 --a 2", "python train.py --a 1 --a 3", ["--a 2 -> --a 3"]),
        ("train --a", "train --a", []),
    ],
)
def test_each_option_and_variable_that_differs_is_a_setting(first: str, second: str, names: list[str]) -> None:
    switches = Switches(Command.parse(first), Command.parse(second))
    assert switches.names == names
    assert switches.command([]).arguments == Command.parse(first).arguments
    assert switches.command(names).arguments == Command.parse(second).arguments


def test_one_setting_leaves_the_others_as_they_are() -> None:
    switches = Switches(Command.parse("X=1 python t.py --a 1 --b"), Command.parse("X=2 python t.py --a 2 --c --b"))
    assert [str(switches.command([name])) for name in switches.names] == [
        "X=2 python t.py --a 1 --b",
        "X=1 python t.py --a 2 --b",
        "X=1 python t.py --a 1 --c --b",
    ]


def test_a_command_tells_no_secret_of_its_variables() -> None:
    text = "HF_TOKEN=hf_x AWS_SECRET_ACCESS_KEY=y WANDB_API_KEY=z SEED=1 python train.py"
    command = Command.parse(text)
    assert str(command) == "HF_TOKEN=... AWS_SECRET_ACCESS_KEY=... WANDB_API_KEY=... SEED=1 python train.py"
    assert command.environment["HF_TOKEN"] == "hf_x"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("python t.py --hf-token hf_x --lr 1", "python t.py --hf-token ... --lr 1"),
        ("python t.py --api_key=hf_x hub.token=y", "python t.py --api_key=... hub.token=..."),
        ("python t.py --token --lr 1 --max-tokens 5 --tokenizer gpt2", None),
        (
            "python t.py --db https://me:pw@host/x https://host/y@z",
            "python t.py --db https://me:...@host/x https://host/y@z",
        ),
        (
            "git clone https://ghp_x@github.com/a ssh://git@host/b",
            "git clone https://...@github.com/a ssh://git@host/b",
        ),
        ("python t.py --db http://me:p@ss@host/x", "python t.py --db http://me:...@host/x"),
        ("TOKENS_PER_STEP=5 X=1 python t.py a=b", "TOKENS_PER_STEP=... X=1 python t.py a=b"),
    ],
)
def test_a_command_tells_no_secret_of_its_arguments(typed: str, shown: str | None) -> None:
    assert str(Command.parse(typed)) == (shown or typed)


def test_a_command_inside_of_a_command_tells_none_either() -> None:
    """As `ab` has them, whose page shows how it was called."""
    typed = ["ab", "HF_TOKEN=x python a.py --token y", "python b.py 'c d'", "it's"]
    assert secrecy.words(typed) == ["ab", "HF_TOKEN=... python a.py --token ...", "python b.py 'c d'", "it's"]


def test_a_secret_that_differs_is_not_told() -> None:
    first, second = (Command.parse(f"HF_TOKEN={x} python t.py --key 1 --password {x}") for x in ("a", "b"))
    assert Switches(first, second).names == ["HF_TOKEN=...", "--password ... -> --password ..."]
