"""Rotary frequencies and how a model stretches them beyond the length it was first trained on."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearScaling:
    """All positions divided by one factor (position interpolation, arXiv:2306.15595)."""

    factor: float

    def apply(self, frequencies: Tensor, _theta: float) -> Tensor:
        """Stretch float32 ``[D/2]`` frequencies in radians per token."""
        return frequencies / self.factor


@dataclass(frozen=True, kw_only=True, slots=True)
class Llama3Scaling:
    """Long waves stretched, short ones kept, a ramp between (the Llama 3.1 release; arXiv:2407.21783)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def apply(self, frequencies: Tensor, _theta: float) -> Tensor:
        """Stretch float32 ``[D/2]`` frequencies in radians per token."""
        turns = self.original_max_position_embeddings * frequencies / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return torch.lerp(frequencies / self.factor, frequencies, kept.clamp(0, 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class YarnScaling:
    """Frequencies ramped by how often they turn within the first context (YaRN, arXiv:2309.00071, section 3.2)."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    truncate: bool

    def apply(self, frequencies: Tensor, theta: float) -> Tensor:
        """Stretch float32 ``[D/2]`` frequencies in radians per token."""
        half = frequencies.shape[0]
        low, high = self._index(self.beta_fast, half, theta), self._index(self.beta_slow, half, theta)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * half - 1)
        # A step instead of a ramp would divide by zero; 0.001 is what the published checkpoints were run with.
        width = high - low or 0.001
        stretched = ((torch.arange(half, dtype=torch.float32) - low) / width).clamp(0, 1)
        return torch.lerp(frequencies, frequencies / self.factor, stretched)

    def _index(self, turns: float, half: int, theta: float) -> float:
        """The (real) index of the frequency that turns so often within the first context."""
        return half * math.log(self.original_max_position_embeddings / (turns * 2 * math.pi)) / math.log(theta)


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeConfig:
    """The rotary embedding of one kind of layer."""

    theta: float
    scaling: LinearScaling | Llama3Scaling | YarnScaling | None = None
    attention_factor: float = 1.0  # on cos and sin; YaRN's correction of the attention temperature

    def frequencies(self, head_dim: int) -> Tensor:
        """Angle per token of each pair of a head's channels: float32 ``[head_dim / 2]``, in radians."""
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        plain = 1.0 / self.theta**exponents
        return plain if self.scaling is None else self.scaling.apply(plain, self.theta)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines of a step's rows, each float32 ``[T, D/2]``."""

    cos: Tensor
    sin: Tensor


def rotation(frequencies: Tensor, attention_factor: float, positions: Tensor) -> Rotation:
    """The rotation of each row from its position, int64 ``[T]``."""
    angles = positions[:, None].float() * frequencies
    return Rotation(angles.cos() * attention_factor, angles.sin() * attention_factor)
