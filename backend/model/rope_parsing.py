"""Reading a rotary embedding out of config.json, in the style of transformers 4 or 5.

transformers 4 keeps the base at the top level (``rope_theta``) and the variant in ``rope_scaling``; transformers 5
keeps both in ``rope_parameters``, which may hold one object per layer type.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from backend.model.config_file import ConfigFile
from backend.model.rope import LinearScaling, Llama3Scaling, RopeConfig, YarnScaling

LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeSource:
    """Where config.json keeps the rotary embedding of one type of layer."""

    theta_key: str = "rope_theta"  # transformers 4's top-level key of the base
    default_theta: float = 10_000.0  # where the file names none
    shared: bool = True  # whether an object that names no layer type speaks for these layers too


def parse_rope(file: ConfigFile, layer_type: str, source: RopeSource) -> RopeConfig:
    """The rotary embedding of the layers of one of ``LAYER_TYPES``.

    Raises:
        ConfigError: a variant this decoder does not compute, or a value out of range.
    """
    section = _section(file, layer_type, source.shared)
    theta = section.number("rope_theta", file.number(source.theta_key, source.default_theta))
    if section.number("partial_rotary_factor", file.number("partial_rotary_factor", 1.0)) != 1.0:
        raise section.error("partial_rotary_factor", "1.0: rotating part of a head is not supported")
    type_key = "type" if section.has("type") and not section.has("rope_type") else "rope_type"
    variant = section.text(type_key, "default")
    if variant not in _VARIANTS:
        raise section.error(type_key, f"one of {', '.join(_VARIANTS)}")
    return _VARIANTS[variant](section, theta, file.integer("max_position_embeddings"))


def _section(file: ConfigFile, layer_type: str, shared: bool) -> ConfigFile:
    if shared and file.has("rope_scaling"):
        return file.section("rope_scaling")
    parameters = file.section("rope_parameters")
    if any(kind in parameters.values for kind in LAYER_TYPES):
        return parameters.section(layer_type)
    if parameters.values and not shared:
        raise file.error("rope_parameters", f"one object per layer type ({', '.join(LAYER_TYPES)})")
    return parameters


def _default(_section: ConfigFile, theta: float, _max_positions: int) -> RopeConfig:
    return RopeConfig(theta=theta)


def _linear(section: ConfigFile, theta: float, _max_positions: int) -> RopeConfig:
    return RopeConfig(theta=theta, scaling=LinearScaling(factor=section.number("factor")))


def _llama3(section: ConfigFile, theta: float, max_positions: int) -> RopeConfig:
    scaling = Llama3Scaling(
        factor=section.number("factor"),
        low_freq_factor=section.number("low_freq_factor"),
        high_freq_factor=section.number("high_freq_factor"),
        original_max_position_embeddings=section.integer("original_max_position_embeddings", max_positions),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise section.error("high_freq_factor", f"more than low_freq_factor = {scaling.low_freq_factor}")
    return RopeConfig(theta=theta, scaling=scaling)


def _yarn(section: ConfigFile, theta: float, max_positions: int) -> RopeConfig:
    original = section.integer("original_max_position_embeddings", max_positions)
    scaling = YarnScaling(
        factor=section.number("factor", max_positions / original),
        original_max_position_embeddings=original,
        beta_fast=section.number("beta_fast", 32.0),
        beta_slow=section.number("beta_slow", 1.0),
        truncate=section.flag("truncate", True),
    )
    factor = section.number("attention_factor", _yarn_attention_factor(section, scaling.factor))
    return RopeConfig(theta=theta, scaling=scaling, attention_factor=factor)


def _yarn_attention_factor(section: ConfigFile, factor: float) -> float:
    """YaRN section 3.4, with the two-weight form that DeepSeek's configs introduced."""

    def temperature(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    weight, weight_all = section.optional_number("mscale"), section.optional_number("mscale_all_dim")
    if weight is not None and weight_all is not None:
        return temperature(weight) / temperature(weight_all)
    return temperature(1.0)


_VARIANTS: Mapping[str, Callable[[ConfigFile, float, int], RopeConfig]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
