"""A character-level recurrent network: scores of the character that follows a window of text.

Cho et al.: Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation, EMNLP 2014.
"""

from __future__ import annotations

from torch import Tensor, nn

from dragfl.errors import SpecError


class CharacterGRU(nn.Module):
    """Embedding, GRU, and a linear layer on the state after the last character.

    Inputs are (n, length) codes of characters below `classes`. Inputs of all models are floats, in which these codes
    are exact.
    """

    def __init__(self, classes: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, embedding)
        self.gru = nn.GRU(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(self.embed(x.long()))
        scores: Tensor = self.head(states[:, -1])
        return scores


def make_gru(shape: tuple[int, ...], classes: int, embedding: int, hidden: int, layers: int) -> nn.Module:
    """Build the network for windows of this shape."""
    if len(shape) != 1:
        raise SpecError(f"model gru: inputs of shape {shape}; it needs windows of characters (length,)")
    if min(embedding, hidden, layers) < 1:
        raise SpecError(f"model gru: embedding={embedding}, hidden={hidden}, layers={layers}; give at least 1")
    return CharacterGRU(classes, embedding, hidden, layers)
