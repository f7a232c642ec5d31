"""One rank of one run: `python -m trainparity.training.worker spec.json`, alone or under torchrun."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from trainparity import workloads
from trainparity.data.store import load as load_data
from trainparity.errors import UserError
from trainparity.lingering import leave
from trainparity.measure import compilation
from trainparity.ownership import end_with_owner
from trainparity.params import Timing
from trainparity.strategies import Execution
from trainparity.training import failure, plain_phase, timing_phase
from trainparity.training.deadline import StepDeadline
from trainparity.training.evaluation import evaluate, predicts
from trainparity.training.files_read import files_read
from trainparity.training.loop import Trainer
from trainparity.training.parity_phase import ParityPhase
from trainparity.training.precision import tensor_cores
from trainparity.training.progress import TrainingProgress
from trainparity.training.resuming import Interrupted, Resuming, StopRequest, any_rank_is_to_stop
from trainparity.training.spec import ENDED, EXIT_INTERRUPTED, EXIT_NO_ROOM, STACKS, Result, RunSpec


def main() -> int:
    """Run one rank; return its exit code."""
    _quieten()
    spec = RunSpec.read(Path(sys.argv[1]))
    rank = int(os.environ.get("RANK", "0"))
    try:
        end_with_owner()
        failure.tell_crashes(spec, rank)
        with files_read(spec, rank) as keep, _deadline(spec, rank) as deadline, _process_group(spec) as execution:
            run(spec, execution, deadline, before_checkpoint=keep)
    except Interrupted as error:
        if rank == 0:
            print(f"{spec.run}: {error}; run it again to resume from there", file=sys.stderr)
        return EXIT_INTERRUPTED
    except SystemExit as error:
        failure.report(spec, rank, f"the program called sys.exit({'' if error.code is None else repr(error.code)})")
        return 1
    except UserError as error:
        failure.report(spec, rank, str(error))
        return 1
    except BaseException as error:  # KeyboardInterrupt, too: SIGINT is noted only, so the user's code has raised it
        no_room = failure.is_for_want_of_room(error)
        with suppress(OSError) if no_room else nullcontext():
            failure.report(spec, rank, failure.sentence(error), no_room=no_room)
        return EXIT_NO_ROOM if no_room else 1
    (spec.work / ENDED.format(rank)).touch()
    return 0


def _deadline(spec: RunSpec, rank: int) -> StepDeadline:
    return StepDeadline(
        spec.work / STACKS.format(rank),
        spec.step_deadline_s,
        compiled=spec.configuration.compile != "none",
        loader_s=spec.configuration.loader.deadline_s if spec.configuration.loader.workers else 0.0,
    )


def run(
    spec: RunSpec,
    execution: Execution,
    deadline: StepDeadline | None = None,
    *,
    before_checkpoint: Callable[[], None] = lambda: None,
) -> None:
    """Execute all phases of a run; outputs go to `spec.work`, and phases that are complete are not repeated."""
    torch.set_num_threads(spec.placement.num_threads)
    _Phases(spec, execution, deadline, before_checkpoint).run()


class _Phases:
    """The phases of a run on one rank, each with a trainer of its own."""

    def __init__(
        self,
        spec: RunSpec,
        execution: Execution,
        deadline: StepDeadline | None,
        before_checkpoint: Callable[[], None],
    ) -> None:
        self._spec, self._execution, self._deadline = spec, execution, deadline
        self._workload = workloads.load(spec.workload.name, spec.workload.options)
        self._dataset = load_data(spec.data)
        self._main = execution.rank == 0
        self._stop = StopRequest()
        self._resuming = partial(Resuming, stop_requested=self._stop, before_checkpoint=before_checkpoint)
        self._scores = predicts(self._workload, self._dataset, spec.train)
        self._first = self._trainer()
        self._timed = self._num_timed_steps()
        self._total = self._first.num_steps * (1 + spec.twins) + self._timed
        self._progress = TrainingProgress(f"{spec.position} {spec.run}".lstrip(), self._total, main=self._main)

    def _num_timed_steps(self) -> int:
        spec = self._spec
        return timing_phase.num_steps(spec.timing, spec.placement.device, self._first.strategy) if spec.timing else 0

    def _trainer(self, order: int = 0) -> Trainer:
        torch.compiler.reset()
        spec = self._spec
        return Trainer(self._workload, self._dataset, spec.train, spec.configuration, self._execution, order=order)

    def run(self) -> None:
        with tensor_cores(self._spec.configuration.precision), self._progress:
            if self._spec.traced:
                self._traced()
            else:
                self._plain()

    def _finish(self, loss: float) -> None:
        """Write, last of all, what became of the run; `loss` is the mean of its last ten steps."""
        Result(steps=self._first.num_steps, loss=loss).write(self._spec.work / "result.json")

    def _phase(self, name: str, done: int) -> None:
        """Start a phase; `done` steps are behind it."""
        if self._deadline:
            self._deadline.phase()
        self._progress.phase(name, done)

    def _stepped(self, loss: float | None = None) -> None:
        self._made_a_step()
        self._progress.step(loss)

    def _made_a_step(self, loss: float | None = None) -> None:
        if self._deadline:
            self._deadline.step()

    def _timed_step(self) -> None:
        """Note a timed step; raise `Interrupted` on all ranks if one is to stop, between two steps' times."""
        self._stepped()
        if any_rank_is_to_stop(self._first, self._stop):
            raise Interrupted("stopped while it was timed")

    def _plain(self) -> None:
        """Train without a trace."""
        losses = plain_phase.train(self._spec, self._first, self._resuming, progress=self._stepped)
        plain_phase.write(self._spec, self._first, losses)
        if self._main:
            self._finish(sum(losses[-10:]) / len(losses[-10:]))

    def _traced(self) -> None:
        """Time the run, if that is asked for and not done, then train with the trace."""
        timing = self._spec.work / "report" / "timing.json"
        if self._spec.timing and not timing.exists():
            if self._spec.configuration.compile != "none" and self._spec.placement.device == "cpu":
                compilation.prepare()
            with compilation.own_kernels(), self._failing_alone():
                self._timed_phase(self._spec.timing, timing)  # compiles cold, and the traced phases find its kernels
                self._traced_phases()
        else:
            self._traced_phases()

    @contextmanager
    def _failing_alone(self) -> Iterator[None]:
        """End the deadline as soon as a phase fails, e.g. as a peer hung: what is cleaned up then is no step."""
        try:
            yield
        except BaseException:
            if self._deadline:
                self._deadline.end()
            raise

    def _timed_phase(self, settings: Timing, output: Path) -> None:
        self._phase("timing", 0)
        timing = timing_phase.measure(self._spec, settings, self._trainer(), self._timed_step)
        if self._main:
            timing.write(output)

    def _traced_phases(self) -> None:
        spec, first = self._spec, self._first
        torch.compiler.reset()  # what the timed phase compiled was not deterministic
        parity = ParityPhase(spec, first, twin=0, resuming=self._resuming)
        self._phase("parity", self._timed)
        has_trained = parity.run(self._stepped)
        self._score(first if has_trained and parity.is_whole else None)
        for number in range(1, spec.twins + 1):
            self._phase(f"twin {number}", self._timed + number * first.num_steps)
            # A model that draws random numbers itself draws other ones for samples in another order.
            order = 0 if parity.draws_random_numbers() else number
            ParityPhase(spec, self._trainer(order), twin=number, resuming=self._resuming).run(self._stepped)
        if self._main:  # which alone has written the trace
            self._finish(parity.final_loss())

    def _score(self, trained: Trainer | None) -> None:
        """Evaluate a model on the samples held out, if there are any.

        Args:
            trained: Its trainer; None: it has to be trained first. Windows that start from the reference's weights
                are no training of its own.
        """
        path = self._spec.work / "state" / "evaluation.json"
        if path.exists() or not self._scores:
            return
        if trained is None:
            trained = self._trainer()
            plain_phase.train(self._spec, trained, self._resuming, progress=self._made_a_step)
        evaluation = evaluate(trained, self._made_a_step)
        if self._main:
            evaluation.write(path)


def _quieten() -> None:
    """Silence what torch says of choices that are ours: no CUDA or Triton on a CPU."""
    for name in ("torch.utils.cpp_extension", "torch.utils.flop_counter"):
        logging.getLogger(name).setLevel(logging.ERROR)


@contextmanager
def _process_group(spec: RunSpec) -> Iterator[Execution]:
    """Join the other ranks, if there are any, for as long as the run lasts."""
    configuration, placement = spec.configuration, spec.placement
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device(placement.device)
    if placement.device == "cuda":
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if configuration.distributed:
        # NCCL moves the gradients; gloo the loop's few CPU numbers and offloaded parameters.
        dist.init_process_group("cpu:gloo,cuda:nccl" if placement.backend == "nccl" else "gloo")
    try:
        yield Execution(
            device=device,
            rank=rank,
            world_size=configuration.num_processes,
            group_size=configuration.group_size,
            num_replicas=configuration.world_size,
            offload_parameters=configuration.offload in ("parameters", "both"),
        )
    finally:
        if configuration.distributed:
            dist.destroy_process_group()


if __name__ == "__main__":
    leave(main())
