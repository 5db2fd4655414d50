"""Residual networks with GroupNorm: no batch statistics, so the server averages parameters only.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016; Wu, He: Group Normalization, ECCV 2018.
Every stage after the first has twice the channels and half the height and width; then comes the mean over pixels.
"""

from __future__ import annotations

from torch import Tensor, nn

from dragfl.errors import SpecError

LARGE = 64  # images of at least this height and width have the stem of the ImageNet networks


class Residual(nn.Module):
    """Two 3x3 convolutions with a skip connection."""

    def __init__(self, before: int, after: int, stride: int, groups: int, norm_skip: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(groups, after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(groups, after)
        # Named as in version 0.1: the names of the layers are keys of saved models.
        self.around: nn.Module = nn.Identity()
        if before != after or stride != 1:
            skip = nn.Conv2d(before, after, 1, stride, bias=False)
            self.around = nn.Sequential(skip, nn.GroupNorm(groups, after)) if norm_skip else skip

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm1(self.first(x)).relu()
        out: Tensor = (self.norm2(self.second(inner)) + self.around(x)).relu()
        return out


def make_resnet(shape: tuple[int, ...], classes: int, width: int, blocks: int, groups: int) -> nn.Module:
    """Three stages of `blocks` residual blocks with width, 2 x width and 4 x width channels."""
    check_settings("resnet", shape, width, blocks, groups)
    stem = [nn.Conv2d(shape[0], width, 3, 1, 1, bias=False), nn.GroupNorm(groups, width), nn.ReLU()]
    return _with_stages(stem, classes, width, 3, blocks, groups, norm_skip=False)


def make_resnet18(shape: tuple[int, ...], classes: int, width: int, groups: int) -> nn.Module:
    """The 18 layers of He et al., with GroupNorm instead of BatchNorm, also on the skip connections."""
    check_settings("resnet18", shape, width, 2, groups)
    kernel, stride, pool = (7, 2, [nn.MaxPool2d(3, 2, 1)]) if min(shape[1:]) >= LARGE else (3, 1, [])
    first = nn.Conv2d(shape[0], width, kernel, stride, kernel // 2, bias=False)
    stem = [first, nn.GroupNorm(groups, width), nn.ReLU(), *pool]
    return _with_stages(stem, classes, width, 4, 2, groups, norm_skip=True)


def check_settings(name: str, shape: tuple[int, ...], width: int, blocks: int, groups: int) -> None:
    if len(shape) != 3:
        raise SpecError(f"model.name: {name} on inputs of shape {shape}; it needs images (channels, height, width)")
    if min(width, blocks, groups) < 1 or width % groups:
        raise SpecError(
            f"model.width: {width} with blocks = {blocks} and groups = {groups}; give a multiple of groups, "
            "and at least 1 of each"
        )


def _with_stages(
    stem: list[nn.Module], classes: int, width: int, stages: int, blocks: int, groups: int, norm_skip: bool
) -> nn.Module:
    """The stem, the stages of residual blocks, and a linear layer on the mean over pixels."""
    layers, before = stem, width
    for stage in range(stages):
        after = width << stage
        for block in range(blocks):
            layers.append(Residual(before, after, 2 if stage and block == 0 else 1, groups, norm_skip))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
