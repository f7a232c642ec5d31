"""Which optimizer makes the steps of a module, where one holds another."""

import torch
from torch import nn

from trainparity.attach.owners import beside, model_of, of_one_step, optimizer_of, updates_for


class Outer(torch.optim.SGD):
    """Makes its step through an optimizer of some of its tensors, or of all."""

    def __init__(self, parameters: list[nn.Parameter], inner: torch.optim.Optimizer) -> None:
        super().__init__(parameters, lr=0.1)
        self.inner = inner


def test_an_optimizer_that_wraps_another_leaves_the_step_to_it() -> None:
    model = nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    outer = Outer(list(model.parameters()), inner)
    assert optimizer_of(model, [inner, outer]) is inner
    assert not updates_for(outer, inner) and not updates_for(inner, outer) and beside(inner, [outer]) == []


def test_one_whose_inner_one_holds_this_ranks_part_alone_makes_the_step() -> None:
    model = nn.Linear(2, 2)
    inner = torch.optim.SGD([model.weight], lr=0.1)
    outer = Outer(list(model.parameters()), inner)
    assert optimizer_of(model, [inner, outer]) is outer
    assert not updates_for(inner, outer)


def test_one_that_is_made_anew_updates_for_the_old_one() -> None:
    model = nn.Linear(2, 2)
    old, anew = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    assert updates_for(anew, old)


def test_tensors_that_no_module_owns_are_recorded_by_themselves() -> None:
    """As a temperature, or the outer copy of local steps: the module that is called belongs to another optimizer."""
    model, tensor = nn.Linear(2, 2), torch.zeros(1, requires_grad=True)
    of_model, of_tensor = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD([tensor], lr=0.1)
    assert list(model_of(of_tensor, model, [of_model]).parameters()) == [tensor]


class LightningModule(nn.Module):
    """Known by its name, as Lightning's own is, which takes seconds to import."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = nn.Linear(2, 2), nn.Linear(2, 1)


def test_each_half_of_a_gan_in_one_lightning_module_is_recorded_apart() -> None:
    gan = LightningModule()
    of_g, of_d = (torch.optim.SGD(half.parameters()) for half in (gan.generator, gan.discriminator))
    assert model_of(of_g, gan, [of_d]) is gan.generator and model_of(of_d, gan, [of_g]) is gan.discriminator
    assert model_of(of_g, gan.generator, []) is gan  # one optimizer: what it leaves alone belongs to the model


def test_a_half_that_is_several_parts_of_a_lightning_module_is_recorded_as_these() -> None:
    """As both generators of a CycleGAN are, which one optimizer updates."""
    gan = LightningModule()
    gan.back = nn.Linear(2, 2)
    both = [*gan.generator.parameters(), *gan.back.parameters()]
    of_g, of_d = torch.optim.SGD(both), torch.optim.SGD(gan.discriminator.parameters())
    assert [*model_of(of_g, gan, [of_d]).children()] == [gan.generator, gan.back]
    gan.both = nn.ModuleList([gan.generator, gan.back])
    assert model_of(of_g, gan, [of_d]) is gan.both


def test_optimizers_of_one_class_over_the_model_that_is_called_make_one_step() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    each = [torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()]
    assert of_one_step(each[0], each, model) == each
    assert of_one_step(each[0], [*each, torch.optim.Adam(nn.Linear(2, 2).parameters())], model) == each
    assert of_one_step(each[0], each, None) == each[:1]


def test_halves_that_are_called_apart_make_their_own_steps_unless_they_are_very_many() -> None:
    halves = [nn.Linear(2, 2) for _ in range(12)]
    each = [torch.optim.SGD(half.parameters(), lr=0.1) for half in halves]
    assert of_one_step(each[0], each[:2], halves[0]) == each[:1]
    assert of_one_step(each[0], each, halves[0]) == each
