"""Several models with optimizers of their own in one run, as a GAN has: recorded apart, judged together."""

from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import trainparity
from tests.support.against_twins import compared
from tests.support.synthetic import judge, scaled
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace
from trainparity.parity.together import together

STEPS, BATCH = 4, 8
REAL = torch.randn(STEPS * BATCH, 4, generator=torch.Generator().manual_seed(1))
NOISE = torch.randn(STEPS * BATCH, 2, generator=torch.Generator().manual_seed(2))


class Gan:
    """A discriminator, trained on real and generated samples, and a generator, each with an optimizer of its own."""

    critic_steps, parts, joined, dropout = 1, 1, False, 0.0
    zero_d, toggled = True, False
    frozen_generator = False
    """Whether the generator makes the discriminator's samples under no_grad."""

    def run(self, folder: Path, twin: int = 0) -> None:
        torch.manual_seed(0)
        self.d = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.g = nn.Sequential(nn.Linear(2, 8), nn.Dropout(self.dropout), nn.Tanh(), nn.Linear(8, 4))
        self.opt_d = torch.optim.Adam(self.d.parameters(), lr=1e-2)
        self.opt_g = torch.optim.Adam(self.g.parameters(), lr=1e-2)
        with (
            trainparity.record(self.d, self.opt_d, folder, twin=twin),
            trainparity.record(self.g, self.opt_g, folder, twin=twin, name="G"),
        ):
            for step in range(STEPS):
                rows = torch.arange(step * BATCH, (step + 1) * BATCH)
                for _ in range(self.critic_steps):
                    self.step_d(rows)
                self.step_g(rows)

    def step_d(self, rows: Tensor) -> None:
        if self.zero_d:
            self.opt_d.zero_grad()
        for part in rows.chunk(self.parts):
            with torch.set_grad_enabled(not self.frozen_generator):
                fake = self.generate(NOISE[part])
            real, made = self.d(self.real(part)), self.d(fake.detach())
            losses = functional.softplus(-real).sum() / BATCH, functional.softplus(made).sum() / BATCH
            for loss in [sum(losses)] if self.joined else losses:
                loss.backward()
        self.before_d()
        self.opt_d.step()
        self.after_d()

    def before_d(self) -> None:
        """Leave the discriminator's gradients as they are."""

    def after_d(self) -> None:
        """Leave the discriminator as it is."""

    def step_g(self, rows: Tensor) -> None:
        self.opt_g.zero_grad()
        self.d.requires_grad_(not self.toggled)
        for part in rows.chunk(self.parts):
            self.generator_loss(self.d(self.generate(NOISE[part]))).sum().div(BATCH).backward()
        self.opt_g.step()
        self.d.requires_grad_(True)

    def generate(self, noise: Tensor) -> Tensor:
        return self.g(noise)  # type: ignore[no-any-return]

    def real(self, part: Tensor) -> Tensor:
        return REAL[part]

    def generator_loss(self, judged: Tensor) -> Tensor:
        return functional.softplus(-judged)


def variant(**changes: Any) -> Gan:
    return variant_of(Gan, **changes)


def variant_of(kind: type[Gan], **changes: Any) -> Gan:
    made: type[Gan] = type("Variant", (kind,), changes)
    return made()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gan") / "a"
    for twin in range(3):
        Gan().run(folder, twin)
    return folder


RIGHT: dict[str, dict[str, Any]] = {
    "itself": {},
    "in two parts": {"parts": 2},
    "one backward of both losses": {"joined": True},
    "samples made under no_grad": {"frozen_generator": True},
    "the discriminator frozen for the generator's step": {"toggled": True},
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_variant_is_the_same_training(name: str, reference: Path, tmp_path: Path) -> None:
    variant(**RIGHT[name]).run(tmp_path / "b")
    found = compare_folders(reference, tmp_path / "b")
    assert found.verdict == ("bitwise" if name == "itself" else found.verdict) != "different", found.explanation
    assert found.exit_code == 0 and found.models == ["(the first)", "G"]


def evaluating(self: Gan, noise: Tensor) -> Tensor:
    self.g.eval()
    return self.g(noise)  # type: ignore[no-any-return]


def clamped(self: Gan) -> None:
    for parameter in self.d.parameters():
        parameter.data.clamp_(-0.1, 0.1)


def only_real(self: Gan, rows: Tensor) -> None:
    self.opt_d.zero_grad()
    self.generate(NOISE[rows])
    (functional.softplus(-self.d(REAL[rows])).sum() / BATCH).backward()
    self.opt_d.step()


def only_fakes(self: Gan, rows: Tensor, *, passes_real: bool) -> None:
    self.opt_d.zero_grad()
    if passes_real:
        self.d(REAL[rows])
    (functional.softplus(self.d(self.generate(NOISE[rows]).detach())).sum() / BATCH).backward()
    self.opt_d.step()


FAULTS: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "the discriminator is clamped": ({"after_d": clamped}, "weights-not-loaded", None),
    "the generator's labels": ({"generator_loss": lambda self, x: functional.softplus(x)}, "loss-or-targets", "G"),
    "the discriminator keeps gradients": ({"zero_d": False}, "gradients-not-zeroed", None),
    "other real samples": ({"real": lambda self, part: REAL[part.flip(0).clamp(min=1)]}, "samples", None),
    "real samples are not passed": ({"step_d": partialmethod(only_fakes, passes_real=False)}, "samples", None),
    "their loss has no backward": ({"step_d": partialmethod(only_fakes, passes_real=True)}, "missing-backward", None),
    "other noise": ({"generate": lambda self, noise: self.g(noise + 1)}, "inputs", "G"),
    "a part of the generator is skipped": (
        {"generate": lambda self, noise: self.g[3](self.g[0](noise))}, "forward", "G",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_in_its_model(name: str, reference: Path, tmp_path: Path) -> None:
    changes, cause, model = FAULTS[name]
    variant(**changes).run(tmp_path / "b")
    found = compare_folders(reference, tmp_path / "b")
    assert (found.verdict, found.cause, found.model) == ("different", cause, model), found.explanation


def test_generated_samples_that_a_discriminator_does_not_see_are_named(tmp_path: Path) -> None:
    for twin in range(3):
        variant(toggled=True).run(tmp_path / "a", twin)
    variant(toggled=True, step_d=only_real).run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause, found.model) == ("different", "samples", None), found.explanation
    assert "0 forward passes over what another model has made" in (found.explanation or "")


class Critic(Gan):
    """Its discriminator is also given points between real and generated samples, as for a gradient penalty."""

    def step_d(self, rows: Tensor) -> None:
        self.opt_d.zero_grad()
        fake = self.generate(NOISE[rows]).detach()
        judged = self.d(REAL[rows]), self.d(fake), self.d(0.3 * REAL[rows] + 0.7 * fake)
        (judged[1] - judged[0] + judged[2].square()).mean().backward()
        self.opt_d.step()


def test_what_is_made_of_generated_samples_differs_by_the_generators_fault(tmp_path: Path) -> None:
    for twin in range(3):
        Critic().run(tmp_path / "a", twin)
    variant_of(Critic, generate=FAULTS["a part of the generator is skipped"][0]["generate"]).run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause, found.model) == ("different", "forward", "G"), found.explanation


class Wasserstein(Gan):
    """Its critic's last bias has a gradient of one less one: nothing but rounding, of which Adam makes whole steps."""

    def step_d(self, rows: Tensor) -> None:
        self.opt_d.zero_grad()
        for part in rows.chunk(self.parts):
            fake = self.generate(NOISE[part]).detach()
            for sign, judged in ((-1, self.d(self.real(part))), (1, self.d(fake))):
                (sign * judged.sum() / BATCH).backward()
        self.opt_d.step()


def test_what_rounding_alone_moves_hides_nothing_else(tmp_path: Path) -> None:
    for twin in range(3):
        variant_of(Wasserstein).run(tmp_path / "a", twin)
    variant_of(Wasserstein, parts=2).run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "equivalent", (found.reason, found.explanation)
    variant_of(Wasserstein, real=lambda self, part: 1.001 * REAL[part]).run(tmp_path / "c")
    assert compare_folders(tmp_path / "a", tmp_path / "c").verdict == "different"


class Penalised(Critic):
    """Its loss has the gradient penalty, and its discriminator, in one variant, another function inside."""

    inside: type[nn.Module] = nn.Tanh

    def step_d(self, rows: Tensor) -> None:
        self.d[1] = self.inside()
        self.opt_d.zero_grad()
        fake = self.generate(NOISE[rows]).data
        between = (0.3 * REAL[rows] + 0.7 * fake).requires_grad_()
        (slope,) = torch.autograd.grad(self.d(between).sum(), between, create_graph=True)
        (self.d(fake) - self.d(REAL[rows]) + 10 * (slope.norm(dim=1) - 1).square()).mean().backward()
        self.opt_d.step()


def test_outputs_that_twins_share_nothing_of_are_not_said_to_agree(tmp_path: Path) -> None:
    """What is made of generated samples has other bits in each twin, and so other signs in the sums."""
    for twin in range(3):
        Penalised().run(tmp_path / "a", twin)
    variant_of(Penalised, inside=nn.Softsign).run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "different" and found.cause in ("forward", "unknown"), found.explanation


class Buffered(Gan):
    """Its discriminator is given what the generator has made out of a buffer, which no graph leads back from."""

    def step_d(self, rows: Tensor) -> None:
        self.opt_d.zero_grad()
        made = torch.cat([torch.unsqueeze(one, 0) for one in self.generate(NOISE[rows]).data])
        (functional.softplus(-self.d(REAL[rows])) + functional.softplus(self.d(made))).mean().backward()
        self.opt_d.step()


def test_samples_out_of_a_buffer_differ_by_the_generators_earlier_fault(tmp_path: Path) -> None:
    for twin in range(3):
        Buffered().run(tmp_path / "a", twin)
    variant_of(Buffered, **FAULTS["the generator's labels"][0]).run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause, found.model) == ("different", "loss-or-targets", "G"), found.explanation


class GeneratorFirst(Gan):
    """What the generator's loss leaves in the discriminator, which returns nearly one number, is thrown away."""

    label, decimals = 1.0, 0
    """Decimals that the output for real samples is rounded to; 0: it is not."""

    def run(self, folder: Path, twin: int = 0) -> None:
        torch.manual_seed(0)
        self.d, self.g = nn.Linear(4, 1), nn.Linear(2, 4)
        with torch.no_grad():
            self.d.weight.mul_(1e-4)
            self.g.weight.mul_(1e-4)
        self.opt_d, self.opt_g = (torch.optim.Adam(model.parameters(), lr=1e-5) for model in (self.d, self.g))
        with trainparity.record(self.d, self.opt_d, folder, twin=twin):
            for _ in range(STEPS):
                fake, real = self.g(NOISE[:BATCH]), REAL[:BATCH] * 1e-4
                (self.d(fake) - 1).square().mean().backward()
                self.opt_d.zero_grad()
                real, made = self.d(real), self.d(fake.detach())
                if self.decimals:  # which has no gradient
                    real, made = real.round(decimals=self.decimals), made.round(decimals=self.decimals)
                loss = (real - self.label).square().mean() + made.square().mean()
                (loss / 2).backward()
                self.opt_d.step()


def test_gradients_that_are_thrown_away_are_not_clipped_off(tmp_path: Path) -> None:
    for twin in range(3):
        GeneratorFirst().run(tmp_path / "a", twin)
    variant_of(GeneratorFirst, label=0.95).run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause) == ("different", "loss-or-targets"), found.explanation


def test_a_gradient_of_zeros_is_no_gradient_that_ranks_have_not_reduced(tmp_path: Path) -> None:
    for twin in range(3):
        GeneratorFirst().run(tmp_path / "a", twin)
    variant_of(GeneratorFirst, decimals=2).run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "different" and found.cause != "ranks-disagree", found.explanation


def test_evaluation_mode_of_the_generator_is_its_own_fault(tmp_path: Path) -> None:
    for twin in range(3):
        variant(dropout=0.5).run(tmp_path / "a", twin)
    variant(dropout=0.5, generate=evaluating).run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause, found.model) == ("different", "eval-mode", "G"), found.explanation


def test_samples_of_the_discriminator_are_the_real_ones(reference: Path) -> None:
    trace = Trace.load(reference)
    assert trace.arrays["num_samples"].tolist() == [BATCH] * STEPS
    assert (trace.arrays["made_elsewhere"] > 0).all() and trace.arrays["sequence"].diff().tolist() == [2] * (STEPS - 1)


def test_models_of_one_run_only_cannot_be_judged(reference: Path, tmp_path: Path) -> None:
    Gan().run(tmp_path / "b")
    (tmp_path / "b/models/G/trace.json").unlink()
    found = compare_folders(reference, tmp_path / "b")
    assert (found.verdict, found.model, found.exit_code) == ("cannot judge", "G", 2)


def test_the_difference_of_the_earlier_step_decides() -> None:
    early, late = judge({}, {"gradients": scaled(2, since=1)}), judge({}, {"lr": lambda step: 0.1 * 0.9**step})
    assert together({"D": late, "G": early}).model == "D" or early.step == late.step
    right = judge({}, {"parts": 2})
    assert together({"D": right, "G": late}).cause == "schedule"
    assert together({"D": right, "G": right}).verdict == "equivalent"
    assert together({"D": right, "G": right}).worst[0].tensor.startswith(("D: ", "G: "))


def test_a_name_is_a_file_name(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    for name in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="must be a file name"):
            trainparity.record(model, torch.optim.SGD(model.parameters()), tmp_path, name=name)


class JudgedBefore(Gan):
    """The generator's step comes first, and the discriminator is trained on what it has judged there."""

    def step_d(self, rows: Tensor) -> None:
        """Wait for the generator."""

    def step_g(self, rows: Tensor) -> None:
        self.opt_g.zero_grad()
        made = self.generate(NOISE[rows])
        self.generator_loss(self.d(made)).sum().div(BATCH).backward()
        self.opt_g.step()
        self.opt_d.zero_grad()
        real, fake = self.d(self.real(rows)), self.d(made.detach())
        (functional.softplus(-real) + functional.softplus(fake)).sum().div(BATCH).backward()
        self.opt_d.step()


class Toggled(JudgedBefore):
    """The discriminator is frozen while the generator is trained, as Lightning does, from the start."""

    weight = 1.0

    def run(self, folder: Path, twin: int = 0) -> None:
        torch.manual_seed(0)
        self.d, self.g = nn.Linear(4, 1), nn.Linear(2, 4)
        self.opt_d, self.opt_g = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (self.d, self.g))
        self.d.requires_grad_(False)
        with (
            trainparity.record(self.d, self.opt_d, folder, twin=twin),
            trainparity.record(self.g, self.opt_g, folder, twin=twin, name="G"),
        ):
            for step in range(STEPS):
                self.step_g(torch.arange(step * BATCH, (step + 1) * BATCH))

    def step_g(self, rows: Tensor) -> None:
        self.opt_g.zero_grad()
        self.d.requires_grad_(False)
        made = self.g(NOISE[rows])
        functional.softplus(-self.d(made)).mean().backward()
        self.opt_g.step()
        self.d.requires_grad_(True)
        if self.zero_d:
            self.opt_d.zero_grad()
        losses = functional.softplus(-self.d(REAL[rows])) + functional.softplus(self.d(made.detach()))
        (self.weight * losses.mean()).backward()
        self.opt_d.step()


@pytest.mark.parametrize(
    ("changes", "cause"), [({"zero_d": False}, "gradients-not-zeroed"), ({"weight": 0.5}, "loss-normalisation")]
)
def test_passes_in_which_a_model_is_frozen_are_of_another_ones_step(
    changes: dict[str, Any], cause: str, tmp_path: Path
) -> None:
    for twin in range(3):
        Toggled().run(tmp_path / "a", twin)
    made: type[Toggled] = type("Variant", (Toggled,), changes)
    made().run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.cause, found.model) == (cause, None), found.explanation


class JudgedBeforeByAnotherLoss(JudgedBefore):
    def generator_loss(self, judged: Tensor) -> Tensor:
        return judged.square()


def test_what_a_discriminator_is_given_is_known_by_the_step_that_has_made_it(tmp_path: Path) -> None:
    for twin in range(3):
        JudgedBefore().run(tmp_path / "a", twin)
    JudgedBeforeByAnotherLoss().run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.cause, found.model) == ("loss-or-targets", "G"), found.explanation


def test_a_model_whose_parameters_have_an_optimizer_each_is_moved_once_in_a_twin(tmp_path: Path) -> None:
    """As where every parameter is updated within backward: eight records of one model, each with all of its weights."""
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizers = [torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()]
    records = [
        trainparity.record(model, optimizer, tmp_path, twin=1, name=str(number) if number else None)
        for number, optimizer in enumerate(optimizers)
    ]
    apart = [((now - then) / then).abs().amax().detach() for now, then in zip(model.parameters(), before, strict=True)]
    assert 0 < float(torch.stack(apart).amax()) < 2 * 2.0**-24 * 1.5
    for one in records:
        one.close()
    again = trainparity.record(model, optimizers[0], tmp_path / "again", twin=1)
    moved = [bool((now != then).any()) for now, then in zip(model.parameters(), before, strict=True)]
    again.close()
    assert all(moved)


class Clipped(Gan):
    """The discriminator alone is clipped, as where it has a gradient penalty; the generator forgets its gradients."""

    limit, rate, early = 0.1, 1.0, False

    def before_d(self) -> None:
        nn.utils.clip_grad_norm_(self.d.parameters(), self.limit)

    def step_g(self, rows: Tensor) -> None:
        super().step_g(rows)
        if self.early:
            self.opt_g.zero_grad()

    def generator_loss(self, judged: Tensor) -> Tensor:
        return self.rate * super().generator_loss(judged)


@pytest.mark.parametrize(
    ("changes", "cause", "model"),
    [
        ({"early": True}, None, None),
        ({"rate": -1.0}, "loss-or-targets", "G"),
        ({"rate": 2.0}, "loss-normalisation", "G"),
        ({"limit": 0.2}, "clipping", None),
    ],
)
def test_clipping_one_model_says_nothing_of_the_other_ones_gradients(
    changes: dict[str, Any], cause: str | None, model: str | None, tmp_path: Path
) -> None:
    for twin in range(3):
        Clipped().run(tmp_path / "a", twin)
    variant_of(Clipped, **changes).run(tmp_path / "b")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.cause, found.model) == (cause, model), found.explanation
    assert found.exit_code == (1 if cause else 0)


def _two_kinds(folder: Path, clip: str, twin: int = 0, unscaled: int = 2) -> None:
    """Train matrices and vectors by optimizers of their own, whose gradients are clipped apart."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    parts = [[p for p in model.parameters() if (p.ndim > 1) == matrices] for matrices in (True, False)]
    optimizers = [torch.optim.Adam(parts[0], lr=1e-2), torch.optim.SGD(parts[1], lr=1e-2)]
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    with (
        trainparity.record(model, optimizers[0], folder, twin=twin),
        trainparity.record(model, optimizers[1], folder, twin=twin, name="vectors"),
    ):
        for rows in REAL.split(BATCH):
            model.zero_grad()
            scaler.scale(model(rows).square().mean()).backward()
            calls = [
                [lambda o=one: scaler.unscale_(o) for one in optimizers[:unscaled]],
                [lambda p=part: nn.utils.clip_grad_norm_(p, 0.01) for part in parts],
                [lambda o=one: scaler.step(o) for one in optimizers],
            ]
            for group in zip(*calls, strict=True) if clip == "in turns" else calls:
                for call in group:
                    call()
            scaler.update()


def test_optimizers_of_one_model_may_unscale_clip_and_step_in_turns(tmp_path: Path) -> None:
    for twin in range(3):
        _two_kinds(tmp_path / "a", "at once", twin)
    _two_kinds(tmp_path / "b", "in turns")
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "equivalent", found.explanation


def test_a_scale_left_in_what_one_of_two_optimizers_clips_is_named(tmp_path: Path) -> None:
    for twin in range(3):
        _two_kinds(tmp_path / "a", "at once", twin)
    _two_kinds(tmp_path / "b", "at once", unscaled=1)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.cause, found.model) == ("grad-scaler", "vectors"), found.explanation


class LeftOut(Gan):
    """One of the optimizers makes no step, or the run ends where its first one is due."""

    missing, crash = "", False

    def before_d(self) -> None:
        self.opt_d.step = (lambda: None) if self.missing == "d" else type(self.opt_d).step.__get__(self.opt_d)

    def generate(self, noise: Tensor) -> Tensor:
        self.opt_g.step = (lambda: None) if self.missing == "g" else type(self.opt_g).step.__get__(self.opt_g)
        return super().generate(noise)

    def generator_loss(self, judged: Tensor) -> Tensor:
        if self.crash:
            judged.register_hook(self._fail)
        return super().generator_loss(judged)

    def _fail(self, gradient: Tensor) -> None:
        raise MemoryError


@pytest.mark.parametrize(("missing", "model"), [("d", None), ("g", "G")])
def test_an_optimizer_that_makes_no_step_at_all_is_named(
    missing: str, model: str | None, reference: Path, tmp_path: Path
) -> None:
    variant_of(LeftOut, missing=missing).run(tmp_path / "b")
    for left, right in ((reference, tmp_path / "b"), (tmp_path / "b", reference)):
        found = compare_folders(left, right)
        assert (found.cause, found.model) == ("parameters-not-updated", model), (found.explanation, found.reason)
    variant_of(LeftOut, missing=missing).run(tmp_path / "c")
    assert compare_folders(tmp_path / "b", tmp_path / "c").verdict == "bitwise"


def test_a_run_that_ends_before_an_optimizers_first_step_has_left_none_out(reference: Path, tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        variant_of(LeftOut, crash=True).run(tmp_path / "b")
    found = compare_folders(reference, tmp_path / "b")
    assert found.verdict == "cannot judge", found.explanation


def test_a_step_whose_recording_fails_is_not_left_out(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(MemoryError), trainparity.record(model, optimizer, tmp_path) as recorder:
        model(torch.ones(4, 2)).sum().backward()
        recorder._session.watch.end = _fails  # type: ignore[method-assign]
        optimizer.step()
    assert not (tmp_path / "idle.json").exists()


def _fails() -> Any:
    raise MemoryError


def _actor_and_critic(frozen: bool, parts: int, folder: Path, twin: int, *, zeroes: bool = True) -> None:
    """Train a critic on states and actions, then an actor by what the critic says of its own actions."""
    torch.manual_seed(0)
    actor, critic = nn.Linear(4, 2), nn.Bilinear(4, 2, 1)
    updates = [torch.optim.Adam(model.parameters(), lr=1e-2) for model in (critic, actor)]
    with (
        trainparity.record(critic, updates[0], folder, twin=twin, interval=1),
        trainparity.record(actor, updates[1], folder, twin=twin, name="actor", interval=1),
    ):
        for states in REAL.view(STEPS, BATCH, 4):
            if zeroes:
                updates[0].zero_grad()
            for some in states.chunk(parts):
                (critic(some, some[:, :2]) - some.sum(1, keepdim=True)).square().sum().div(BATCH).backward()
            updates[0].step()
            updates[1].zero_grad()
            critic.requires_grad_(not frozen)
            for some in states.chunk(parts):
                (-critic(some, actor(some)).sum() / BATCH).backward()
            critic.requires_grad_(True)
            updates[1].step()


def test_what_an_actors_loss_gives_a_critic_that_throws_it_away_is_none_of_its_samples(tmp_path: Path) -> None:
    for twin in range(3):
        _actor_and_critic(False, 1, tmp_path / "a", twin)
    _actor_and_critic(True, 2, tmp_path / "b", 0)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "equivalent", found.explanation
    _actor_and_critic(False, 1, tmp_path / "b", 0, zeroes=False)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause) == ("different", "gradients-not-zeroed"), found.explanation


def _two_heads(zeroes: bool, folder: Path) -> None:
    """Train two parts by a loss each, after another one has come through both."""
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder, interval=1):
        for rows in REAL.view(STEPS, BATCH, 4):
            (model[0](rows).mean() + 3 * model[1](rows).mean()).backward()
            if zeroes:
                optimizer.zero_grad()
            for part in model:
                part(rows).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def test_another_loss_that_is_not_thrown_away_is_named_where_parts_have_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        _two_heads(name == "a", tmp_path / name)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause) == ("different", "gradients-not-zeroed"), found.explanation
    assert found.advice == (
        "call optimizer.zero_grad() where the reference does, as before a model's own loss goes backward where another "
        "model's came through it, or freeze it for that one"
    )


def _after_an_encoder(zeroes: bool, folder: Path, twin: int) -> None:
    """Train a model on what another one, which is not recorded, has made; the fault zeroes between micro-batches."""
    torch.manual_seed(0)
    encoder, model = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for rows in REAL.view(STEPS, BATCH, 4):
            optimizer.zero_grad()
            for some in rows.chunk(2):
                if zeroes:
                    optimizer.zero_grad()
                (model(encoder(some)).square().sum() / BATCH).backward()
            optimizer.step()


def test_gradients_zeroed_between_micro_batches_are_named_behind_an_encoder(tmp_path: Path) -> None:
    for twin in range(3):
        _after_an_encoder(False, tmp_path / "a", twin)
    _after_an_encoder(True, tmp_path / "b", 0)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause) == ("different", "gradients-not-zeroed"), found.explanation


class Translating(nn.Module):
    """A decoder, given tokens and what the encoder hands it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.drop, self.head = nn.Embedding(16, 8), nn.Dropout(0.2), nn.Linear(8, 16)

    def forward(self, tokens: Tensor, state: Tensor) -> Tensor:
        scores: Tensor = self.head(self.drop(torch.tanh(self.embed(tokens) + state)))
        return scores


def _translate(folder: Path, twin: int = 0, *, fault: str = "") -> None:
    torch.manual_seed(0)
    encoder, decoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), Translating()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (encoder, decoder)]
    if fault == "evaluates":
        decoder.eval()
    with (
        trainparity.record(encoder, optimizers[0], folder, twin=twin),
        trainparity.record(decoder, optimizers[1], folder, twin=twin, name="decoder"),
    ):
        for batch in torch.randn(STEPS, BATCH, 6, generator=torch.Generator().manual_seed(3)):
            tokens = (batch[:, 0].abs() * 7).long() % 16
            state = encoder(batch)
            for optimizer in optimizers:
                optimizer.zero_grad()
            scores = decoder(tokens, 0.9 * state if fault == "hands on" else state)
            targets = (tokens + 1 + (fault == "targets")) % 16
            functional.cross_entropy(scores, targets).backward()
            for optimizer in optimizers:
                optimizer.step()


@pytest.mark.parametrize(
    ("fault", "cause", "model"),
    [("evaluates", "eval-mode", "decoder"), ("hands on", "inputs", "decoder"), ("targets", "loss-or-targets", None)],
)
def test_a_fault_of_the_model_behind_is_no_other_loss_of_the_one_before(
    fault: str, cause: str, model: str | None, tmp_path: Path
) -> None:
    for twin in range(3):
        _translate(tmp_path / "a", twin)
    _translate(tmp_path / "b", fault=fault)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause, found.model) == ("different", cause, model), found.explanation


def _one_model_of_two(folder: Path, twin: int, smoothing: float) -> None:
    """Train one model with an optimizer for its weights and one for its biases, which steps first."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    kinds = [[p for p in model.parameters() if p.ndim == dimensions] for dimensions in (1, 2)]
    biases, weights = (torch.optim.SGD(parameters, lr=0.1) for parameters in kinds)
    with (
        trainparity.record(model, biases, folder, twin=twin),
        trainparity.record(model, weights, folder, twin=twin, name="weights"),
    ):
        for batch in torch.randn(STEPS, BATCH, 6, generator=torch.Generator().manual_seed(3)):
            labels = (batch[:, 0] > 0).long()
            functional.cross_entropy(model(batch), labels, label_smoothing=smoothing).backward()
            for optimizer in (biases, weights):
                optimizer.step()
            model.zero_grad()


def test_what_an_earlier_optimizer_has_moved_explains_no_loss(tmp_path: Path) -> None:
    found = compared(partial(_one_model_of_two, smoothing=0.0), partial(_one_model_of_two, smoothing=0.1), tmp_path)
    assert (found.verdict, found.cause, found.model) == ("different", "loss-or-targets", None), found.explanation


@pytest.mark.parametrize(
    ("parts", "factor", "flipped", "said"),
    [(2, 1.0, False, None), (2, 1.5, False, "loss-normalisation"), (1, 1.0, True, "inputs")],
)
def test_a_generator_whose_samples_were_made_without_gradients_before_is_given_its_own(
    parts: int, factor: float, flipped: bool, said: str | None, tmp_path: Path
) -> None:
    """For the critic's step, by the same call: what it is given next goes on from none of that."""

    def train(folder: Path, twin: int, parts: int = 1, factor: float = 1.0, flipped: bool = False) -> None:
        torch.manual_seed(0)
        generator = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8))
        critic = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        of_generator, of_critic = (torch.optim.Adam(model.parameters(), lr=1e-3) for model in (generator, critic))
        draws, worth = torch.Generator().manual_seed(1), nn.functional.softplus
        with (
            trainparity.record(critic, of_critic, folder, twin=twin, interval=1),
            trainparity.record(generator, of_generator, folder, twin=twin, interval=1, name="G"),
        ):
            for _ in range(4):
                real, noise = torch.randn(16, 8, generator=draws) + 1, torch.randn(16, 4, generator=draws)
                of_critic.zero_grad()
                for some, others in zip(real.chunk(parts), noise.chunk(parts), strict=True):
                    with torch.no_grad():
                        made = generator(others)
                    ((worth(critic(made)) + worth(-critic(some))).mean() / parts).backward()
                of_critic.step()
                noise = torch.randn(16, 4, generator=draws)
                of_generator.zero_grad()
                for others in (noise.flip(1) if flipped else noise).chunk(parts):
                    (factor * worth(-critic(generator(others))).mean() / parts).backward()
                of_generator.step()

    found = compared(train, partial(train, parts=parts, factor=factor, flipped=flipped), tmp_path)
    assert Trace.load(tmp_path / "reference/models/G").arrays["num_samples"].tolist() == [16] * 4
    assert found.verdict == ("different" if said else "equivalent")
    assert (found.cause, found.model) == (said, "G" if said else None), found.explanation
