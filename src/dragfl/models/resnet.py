"""A small residual network with GroupNorm: no batch statistics, so the server averages parameters only.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016; Wu, He: Group Normalization, ECCV 2018.
Three stages of residual blocks with `width`, 2 x width and 4 x width channels, then the mean over pixels.
"""

from __future__ import annotations

from torch import Tensor, nn

from dragfl.errors import SpecError


class Residual(nn.Module):
    """Two 3x3 convolutions with a skip connection."""

    def __init__(self, before: int, after: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(groups, after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(groups, after)
        same = before == after and stride == 1
        # Named as in version 0.1: the names of the layers are keys of saved models.
        self.around = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm1(self.first(x)).relu()
        out: Tensor = (self.norm2(self.second(inner)) + self.around(x)).relu()
        return out


def make_resnet(shape: tuple[int, ...], classes: int, width: int, blocks: int, groups: int) -> nn.Module:
    """Build the network for images of this shape."""
    if len(shape) != 3:
        raise SpecError(f"model resnet: inputs of shape {shape}; it needs images (channels, height, width)")
    if min(width, blocks, groups) < 1 or width % groups:
        raise SpecError(f"model resnet: width={width}, blocks={blocks}, groups={groups}; width must divide by groups")
    layers: list[nn.Module] = [nn.Conv2d(shape[0], width, 3, 1, 1, bias=False), nn.GroupNorm(groups, width), nn.ReLU()]
    before = width
    for stage in range(3):
        after = width << stage
        for block in range(blocks):
            layers.append(Residual(before, after, 2 if stage and block == 0 else 1, groups))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
