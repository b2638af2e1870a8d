"""A linear map to a gate and what it gates, and the activation behind it, of sets that have no operation for both."""

from typing import Any

from torch import Tensor

from kernels.operations import GatedActivation, GatedLinear, Linear


def in_two(linear: Linear, gated_activation: GatedActivation) -> GatedLinear:
    """One operation after the other."""

    def gated_linear(x: Tensor, weight: Any, bias: Tensor | None, activation: str) -> Tensor:
        return gated_activation(linear(x, weight, bias), activation)

    return gated_linear
