"""Where a decode step's milliseconds go, beside what memory and arithmetic of this machine allow at best."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from backend.model.config import ModelConfig
from backend.model.decoder import Decoder
from backend.model.weights import DecoderWeights
from kernels.operations import Operations

from .decode_step import Subject, decode_batch, pool_for, step_milliseconds

Watched = Callable[[str, float], None]


class StepProfile:
    """One model's step, taken apart by operation; matrix products by the matrix."""

    def __init__(self, subject: Subject) -> None:
        """Load the model."""
        self._subject = subject
        operations = subject.operations()
        self._config, self._weights = subject.load(operations)
        self._plain = Decoder(self._config, self._weights, operations)
        self._spent: Counter[str] = Counter()
        self._watched = Decoder(self._config, self._weights, self._timed(operations))

    def report(self, sequences: int, keys: int, repeats: int) -> str:
        """A Markdown table of one step of so many sequences with so many keys each."""
        inputs = decode_batch(sequences, keys)
        pool = pool_for(self._config, int(inputs.block_tables.max()) + 1, self._subject.numbers.pool)
        total = statistics.median(step_milliseconds(self._plain, inputs, pool, repeats))
        self._watched.forward(inputs, pool)
        self._spent.clear()
        step_milliseconds(self._watched, inputs, pool, repeats - 1)
        parts = {name: milliseconds / repeats for name, milliseconds in self._spent.most_common()}
        parts["Python and torch between them"] = total - sum(parts.values())
        lines = [f"| {sequences} sequences, {keys} keys each | ms | share |", "|---|---:|---:|"]
        lines += [f"| {name} | {ms:.2f} | {ms / total:.0%} |" for name, ms in parts.items()]
        lines += [f"| **step** | **{total:.2f}** | |", *self._floors(sequences, keys, total)]
        return "\n".join(lines)

    def _floors(self, sequences: int, keys: int, total: float) -> list[str]:
        read = weight_bytes(self._weights) + key_bytes(
            self._config, sequences * keys, self._subject.numbers.pool.itemsize
        )
        work = sequences * (
            weight_products(self._config) + 4 * self._config.num_layers * keys * _query_width(self._config)
        )
        memory = read / bytes_per_second(self._subject.threads) * 1e3
        arithmetic = work / operations_per_second(self._subject.threads) * 1e3
        return [
            f"| floor: {read / 1e6:.0f} MB read once | {memory:.2f} | {memory / total:.0%} |",
            f"| floor: {work / 1e9:.2f} GFLOP in float32 | {arithmetic:.2f} | {arithmetic / total:.0%} |",
        ]

    def _timed(self, operations: Operations) -> Operations:
        matrices = {id(self._weights.head): "head"}
        for layer in self._weights.layers:
            for name in ("qkv", "attention_output", "gate_up", "down"):
                matrices[id(getattr(layer, name))] = name

        def watch(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                began = time.perf_counter()
                result = operation(*args, **options)
                spent = (time.perf_counter() - began) * 1e3
                matrix = f" {matrices[id(args[1])]}" if name in ("linear", "gated_linear") else ""
                self._spent[name + matrix] += spent
                return result

            return call

        others = ("pack_linear", "workspace", "recorder")
        names = [field.name for field in dataclasses.fields(operations) if field.name not in others]
        return dataclasses.replace(operations, **{name: watch(name, getattr(operations, name)) for name in names})


def weight_bytes(weights: DecoderWeights) -> int:
    """What a step reads of the matrices, once each."""
    packed = [weights.head]
    for layer in weights.layers:
        packed += [layer.qkv, layer.attention_output, layer.gate_up, layer.down]
    return sum(one.panels.nbytes + (0 if one.scale is None else one.scale.nbytes) for one in packed)


def key_bytes(config: ModelConfig, tokens: int, itemsize: int) -> int:
    """What attention reads of so many tokens' keys and values, ``itemsize`` bytes each; windows not counted."""
    return tokens * config.num_layers * 2 * config.num_kv_heads * config.head_dim * itemsize


def weight_products(config: ModelConfig) -> int:
    """Floating-point operations of one token in all matrices, the head among them."""
    width = config.hidden_size
    queries = _query_width(config)
    keys = config.num_kv_heads * config.head_dim
    layer = width * (queries + 2 * keys) + queries * width + 3 * width * config.intermediate_size
    return 2 * (config.num_layers * layer + config.vocab_size * width)


def _query_width(config: ModelConfig) -> int:
    return config.num_heads * config.head_dim


def bytes_per_second(threads: int, size: int = 1 << 29, repeats: int = 5) -> float:
    """Of reading memory that no cache holds, the best of some tries."""
    data = torch.zeros(size // 4)
    return size / _best_seconds(data.sum, threads, repeats)


def operations_per_second(threads: int, size: int = 1536, repeats: int = 5) -> float:
    """Floating-point operations of torch's float32 matrix product, the best of some tries."""
    a, b = torch.randn(2, size, size)
    return 2 * size**3 / _best_seconds(lambda: a @ b, threads, repeats)


def _best_seconds(run: Callable[[], object], threads: int, repeats: int) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run()
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        return min(times)
    finally:
        torch.set_num_threads(before)
