"""The small ResNet and ResNet-18: their size computed by hand, no buffers, and training in a federation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import dragfl
from dragfl.errors import SpecError
from dragfl.models import networks, resnet, resnet18
from tests.conftest import Load


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def block(before: int, after: int, skip: bool) -> int:
    """Two 3x3 convolutions without bias, two norms with scale and shift, and a 1x1 convolution for a new shape."""
    return 9 * before * after + 9 * after * after + 4 * after + (before * after if skip else 0)


def by_hand(channels: int, classes: int, width: int, blocks: int) -> int:
    total = 9 * channels * width + 2 * width
    before = width
    for after in (width, 2 * width, 4 * width):
        for i in range(blocks):
            total += block(before, after, i == 0 and after != width)
            before = after
    return total + before * classes + classes


def test_on_cifar() -> None:
    """Stem 464, stages 4,672 + 14,464 + 57,600, head 650; the number in the table of networks.py."""
    assert by_hand(3, 10, 16, 1) == 464 + 4_672 + 14_464 + 57_600 + 650 == count(resnet((3, 32, 32), 10))
    assert networks.__doc__ is not None
    assert f"{count(resnet((3, 32, 32), 10)):,} on CIFAR-10 with width = 16, blocks = 1" in networks.__doc__


@pytest.mark.parametrize(("channels", "classes", "width", "blocks"), [(1, 47, 8, 1), (3, 10, 16, 3), (2, 5, 24, 2)])
def test_other_sizes(channels: int, classes: int, width: int, blocks: int) -> None:
    module = resnet((channels, 16, 16), classes, width=width, blocks=blocks)
    assert count(module) == by_hand(channels, classes, width, blocks)
    assert module(torch.zeros(2, channels, 16, 16)).shape == (2, classes)


def test_group_norm_and_no_buffers() -> None:
    module = resnet((3, 32, 32), 10, groups=4)
    assert not list(module.buffers())
    kinds = {type(layer).__name__ for layer in module.modules() if "Norm" in type(layer).__name__}
    assert kinds == {"GroupNorm"}
    assert {layer.num_groups for layer in module.modules() if isinstance(layer, nn.GroupNorm)} == {4}


def test_a_prediction_does_not_depend_on_the_batch() -> None:
    """With GroupNorm the output for an image is the same alone and in a batch, in training too."""
    torch.manual_seed(0)
    module = resnet((1, 8, 8), 10, width=8).train()
    x = torch.randn(5, 1, 8, 8)
    torch.testing.assert_close(module(x)[2:3], module(x[2:3]), atol=1e-5, rtol=1e-5)


def test_the_skip_connection_carries_the_signal() -> None:
    """With all inner convolutions at zero the norms give zero, so a block of equal shape is relu(x)."""
    module = resnet((1, 8, 8), 3, width=8)
    inner = next(layer for layer in module.modules() if type(layer).__name__ == "Residual")
    with torch.no_grad():
        for name, p in inner.named_parameters():
            if name.startswith("second"):
                p.zero_()
    x = torch.randn(2, 8, 8, 8)
    torch.testing.assert_close(inner(x), x.relu())


def test_stages_halve_the_image() -> None:
    module = resnet((3, 32, 32), 10, blocks=2)
    shapes = []
    for layer in module.modules():
        if type(layer).__name__ == "Residual":
            layer.register_forward_hook(lambda _, __, out: shapes.append(tuple(out.shape[1:])))
    module(torch.zeros(1, 3, 32, 32))
    assert shapes == [(16, 32, 32)] * 2 + [(32, 16, 16)] * 2 + [(64, 8, 8)] * 2


def test_it_learns_in_a_federation(experiment: Load, tmp_path: Path) -> None:
    spec = experiment(
        rounds=4,
        data={"dataset": "digits", "partition": {"kind": "iid"}},
        model={"name": "resnet", "width": 8},
        clients={"total": 4, "local_steps": 8, "batch_size": 16, "lr": 0.3},
        evaluation={"every": 4},
    )
    first = dragfl.simulate(spec)
    start = first.evaluate()["loss"]
    run = dragfl.run(spec, tmp_path / "r")
    assert run.metrics[-1]["loss"] < 0.8 * start
    assert run.spec["model"] == {
        "name": "resnet", "width": 8, "blocks": 1, "groups": 8, "double_softmax": False, "buffers": "refuse"
    }  # fmt: skip
    resnet((1, 8, 8), 10, width=8).load_state_dict(run.model(), strict=True)


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ((64,), {}, r"inputs of shape \(64,\); it needs images"),
        ((3, 32, 32), {"width": 12}, "width: 12 with blocks = 1 and groups = 8; give a multiple of groups"),
        ((3, 32, 32), {"width": 0}, "width: 0"),
        ((3, 32, 32), {"blocks": 0}, "blocks = 0"),
        ((3, 32, 32), {"groups": 0}, "groups = 0"),
    ],
)
def test_errors(shape: tuple[int, ...], settings: dict[str, int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        resnet(shape, 10, **settings)


def test_an_unknown_setting_in_a_spec(experiment: Load) -> None:
    with pytest.raises(SpecError, match=r"model\.widht: unknown key 'widht'; did you mean 'width'"):
        experiment(model={"name": "resnet", "widht": 8})


def by_hand_18(channels: int, classes: int, kernel: int) -> int:
    """Stem, four stages of two blocks (the skip convolution of the last three has a norm too), head.

    A 1x1 skip convolution with its norm has before * after + 2 * after weights.
    """
    total, before = kernel * kernel * channels * 64 + 2 * 64, 64
    for after in (64, 128, 256, 512):
        skip = before != after
        total += block(before, after, skip) + (2 * after if skip else 0) + block(after, after, False)
        before = after
    return total + 512 * classes + classes


def test_resnet18() -> None:
    """11,173,962 on CIFAR-10; with the ImageNet stem and 1,000 classes the 11,689,512 of the usual ResNet-18."""
    small, large = resnet18((3, 32, 32), 10), resnet18((3, 224, 224), 1000)
    assert count(small) == by_hand_18(3, 10, 3) == 11_173_962
    assert count(large) == by_hand_18(3, 1000, 7) == 11_689_512
    assert networks.__doc__ is not None and f"{count(small):,} on CIFAR-10" in networks.__doc__
    assert {layer.num_groups for layer in small.modules() if isinstance(layer, nn.GroupNorm)} == {32}
    assert not list(small.buffers())
    assert sum(isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1) for layer in small.modules()) == 17


@pytest.mark.parametrize(
    ("side", "sides"),
    [
        (32, [32, 32, 16, 16, 8, 8, 4, 4]),
        (64, [16, 16, 8, 8, 4, 4, 2, 2]),
        (8, [8, 8, 4, 4, 2, 2, 1, 1]),
    ],
)
def test_the_stem_of_resnet18(side: int, sides: list[int]) -> None:
    """Images of 64 pixels have the 7x7 stem with pooling, a quarter of the height before the first stage."""
    module, seen = resnet18((3, side, side), 5, width=8, groups=4), []
    for layer in module.modules():
        if type(layer).__name__ == "Residual":
            layer.register_forward_hook(lambda _, __, out: seen.append(out.shape[2]))
    assert module(torch.zeros(1, 3, side, side)).shape == (1, 5)
    assert seen == sides


def test_the_norm_of_a_skip_connection() -> None:
    """Saved models of `resnet` have none: their keys stay."""
    assert "3.around.1.weight" not in resnet((3, 32, 32), 10).state_dict()
    assert {"4.around.weight", "5.around.weight"} < set(resnet((3, 32, 32), 10).state_dict())
    assert {"5.around.0.weight", "5.around.1.weight"} < set(resnet18((3, 32, 32), 10, width=8, groups=4).state_dict())


def test_resnet18_trains(experiment: Load) -> None:
    spec = experiment(
        rounds=2,
        data={"dataset": "digits", "partition": {"kind": "iid"}},
        model={"name": "resnet18", "width": 8, "groups": 8},
        clients={"total": 2, "local_steps": 6, "batch_size": 16, "lr": 0.1},
        evaluation={"every": 1},
    )
    simulation = dragfl.simulate(spec)
    start = simulation.evaluate()["loss"]
    *_, last = simulation
    assert last.metrics["loss"] < start


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ((64,), {}, "model.name: resnet18 on inputs of shape"),
        ((3, 8, 8), {"width": 16}, "width: 16 with blocks = 2 and groups = 32"),
    ],
)
def test_errors_of_resnet18(shape: tuple[int, ...], settings: dict[str, int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        resnet18(shape, 10, **settings)
