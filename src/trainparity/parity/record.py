"""`trainparity.record`: the trace of anybody's training loop, from two lines in it."""

from pathlib import Path
from typing import Any

from torch import nn

from trainparity.parity import arguments, run_folder
from trainparity.parity.recorder import Recorder
from trainparity.parity.recording import ranks
from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.identity import Samples, identities
from trainparity.parity.recording.joint import Joint, joined
from trainparity.parity.recording.schedule import INTERVAL, schedule
from trainparity.parity.recording.session import Plan, Session
from trainparity.parity.recording.unwrap import reshard
from trainparity.parity.recording.watch import StepWatch
from trainparity.parity.recording.windows import WINDOWS
from trainparity.records.base import Settings


@unseen
def record(
    model: nn.Module,
    optimizer: Any,
    folder: str | Path,
    *,
    samples: str | Samples | None = None,
    interval: int | None = None,
    first: int = 8,
    every: int = 0,
    follow: str | Path | None = None,
    twin: int | None = None,
    name: str | None = None,
    sketch_size: int = 64,
    settings: Settings | None = None,
) -> Recorder:
    """Record a training run into `folder`, for `trainparity compare`. Call it on every rank, before the first step.

    Args:
        model: What the loop calls: plain, or wrapped by DDP, FSDP2, `torch.compile`, Accelerate, Fabric.
        optimizer: A `torch.optim.Optimizer`, or what Accelerate, Lightning or Fabric made of one. Several that update
            one model together, as one for each parameter: a list of them, or a dict with them as values.
        folder: Where trace.json and trace.safetensors are written when the run ends. Those of an earlier run are
            removed, with its curve and the traces of its twins.
        samples: Where samples get their identity: a keyword argument of the model's forward that holds their
            indices, or a function of its (args, kwargs); by default their contents.
        interval: Trace every so many optimizer steps, besides the first ones. 1 traces all. By default every 50th,
            and from step 2,000 on half as many whenever the number of steps has doubled; of each window every 50th,
            from its first step on, and its last one.
        first: Trace so many steps from the start.
        every: Judge in windows of so many steps: the reference keeps its state at each window's start.
        follow: The reference's folder; at each window's start its weights and optimizer state are loaded.
        twin: Make this run a twin: weights moved by half an ulp, recorded into `folder/twins/<twin>`. Twins
            measure the noise floor. By default the environment variable TRAINPARITY_TWIN.
        name: Of several models with optimizers of their own, as a GAN has: this one's. It is recorded into
            `folder/models/<name>`, and `compare` judges all of a run together.
        sketch_size: Numbers that one tensor is projected to.
        settings: Facts of the loop to be shown beside the verdict.

    Raises:
        ValueError: an argument is out of range, or the name is no file name.
        TypeError: an argument is of another type.
        RecordError: the folder can't be written to, the run to follow has no states to load, or the optimizer has
            options that can't be kept in one.
    """
    number = run_folder.asked_twin() if twin is None else twin
    folder = run_folder.of_run(folder)
    follow = None if follow is None else Path(follow).absolute()
    least = {
        "interval": (INTERVAL if interval is None else interval, 1),
        "first": (first, 0),
        "every": (every, 0),
        "twin": (number, 0),
    }
    arguments.check(model, settings, **least, sketch_size=(sketch_size, 1))
    if follow is not None and not every:
        raise ValueError("follow needs every=: the number of steps after which the reference's state is loaded")
    if name is not None:
        folder, follow = run_folder.of_model(folder, name), follow and run_folder.of_model(follow, name)
    reshard(model)
    optimizer = joined(optimizer)
    if every and isinstance(optimizer, Joint):
        raise ValueError("every= needs one optimizer: the state of several that make a step together is not kept")
    followed = folder if number and every and follow is None else follow
    if followed is not None:
        if followed.resolve() == folder.resolve() and not number:
            raise ValueError(f"follow={folder} is the folder that this run is recorded into; give it another one")
        run_folder.check_followed(followed, every)
    elif every:
        from trainparity import checkpoints  # with torch.distributed's checkpoints: 0.5 s

        checkpoints.check_options(optimizer)
    place = folder / "twins" / str(number) if number else folder
    if not ranks.rank():
        run_folder.make(place)
    state = folder / WINDOWS
    plan = Plan(
        traced=schedule(first, interval, window=every),
        window=every,
        keep=state if every and followed is None else None,
        follow=followed / WINDOWS if followed is not None else None,
        twin=number,
        rounds_as=run_folder.format_of_reference(folder) if number else None,
    )
    return Recorder(
        Session(StepWatch(model, optimizer, sketch_size=sketch_size, samples=identities(samples)), plan),
        place,
        settings={"samples": "identity" if samples is not None else "content", **(settings or {})},
    )
