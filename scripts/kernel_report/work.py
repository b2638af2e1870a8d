"""The least that each kernel must move and compute, and how long that takes at the rates on a chip's data sheet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """Data-sheet rates: bytes a second of device memory, dense bfloat16 operations a second."""

    name: str
    bandwidth: float
    rate: float


H100 = Chip("H100 SXM", 3.35e12, 989e12)
H200 = Chip("H200", 4.8e12, 989e12)


@dataclass(frozen=True, slots=True)
class Work:
    """One launch. moved: bytes that must cross to or from memory. computed: multiplications and additions."""

    kernel: str
    shape: str
    moved: float
    computed: float

    def seconds(self, chip: Chip) -> float:
        """The longer of the two: moving and computing overlap."""
        return max(self.moved / chip.bandwidth, self.computed / chip.rate)

    def bound(self, chip: Chip) -> str:
        """Which of the two it is."""
        return "memory" if self.moved / chip.bandwidth >= self.computed / chip.rate else "compute"


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model's shapes."""

    name: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    size: int
    vocab: int

    @property
    def qkv(self) -> int:
        """Columns of queries, keys and values together."""
        return (self.heads + 2 * self.kv_heads) * self.size


LLAMA = Model(
    name="Llama-3.1-8B", layers=32, hidden=4096, inner=14336, heads=32, kv_heads=8, size=128, vocab=128256
)  # fmt: skip
QWEN = Model(name="Qwen3-0.6B", layers=28, hidden=1024, inner=3072, heads=16, kv_heads=8, size=128, vocab=151936)


def attention(model: Model, batch: int, rows: int, keys: int, pool_bytes: float = 2) -> Work:
    """``batch`` sequences of ``rows`` query rows that end at ``keys`` keys, causal."""
    pairs = batch * rows * (keys - (rows - 1) / 2)
    pool = 2 * batch * keys * model.kv_heads * (model.size * pool_bytes + (4 if pool_bytes == 1 else 0))
    queries = 2 * 2 * batch * rows * model.heads * model.size
    kind = "decode attention" if rows == 1 else "prompt attention"
    label = f"{batch} x {rows} rows, {keys} keys" + (", pool in 8 bits" if pool_bytes == 1 else "")
    return Work(kind, f"{model.name}: {label}", pool + queries, 4 * pairs * model.heads * model.size)


def linear(model: Model, rows: int, weight_bytes: float) -> Work:
    """The gate and up projection of one layer."""
    weights = 2 * model.inner * model.hidden
    moved = weights * weight_bytes + 2 * rows * (model.hidden + 2 * model.inner)
    label = f"{model.name}: gate_up, {rows} rows, {weight_bytes * 8:g} bits"
    return Work("linear", label, moved, 2 * rows * weights)


def pointwise(model: Model, rows: int) -> list[Work]:
    """The kernels that only move rows."""
    shape = f"{model.name}: {rows} rows"
    return [
        Work("rope_and_write", shape, 2 * 2 * rows * model.qkv + 4 * rows * model.size, 3 * rows * model.qkv),
        Work("add_rms_norm", shape, 4 * 2 * rows * model.hidden, 6 * rows * model.hidden),
        Work("gated_activation", shape, 3 * 2 * rows * model.inner, 6 * rows * model.inner),
        Work("sample, no filter", shape, 4 * rows * model.vocab, 60 * rows * model.vocab),
        # The row is read once and its scaled copy written once from memory; the search reads it from the cache.
        Work("sample, filtered", shape, 4 * 3 * rows * model.vocab, (60 + 16 * 12) * rows * model.vocab),
        Work("token_log_probs", shape, 4 * rows * model.vocab, 8 * rows * model.vocab),
    ]


def copies(model: Model, blocks: int, block_size: int = 16) -> Work:
    """Whole blocks, read and written."""
    block = model.layers * 2 * model.kv_heads * block_size * model.size * 2
    return Work("copy_blocks", f"{model.name}: {blocks} blocks of {block >> 10} KiB", 2 * blocks * block, 0)


def all_work() -> list[Work]:
    """The launches that the report shows."""
    found: list[Work] = []
    for model in (LLAMA, QWEN):
        for batch, keys in ((1, 8192), (64, 1024), (64, 8192), (256, 1024)):
            found.append(attention(model, batch, 1, keys))
        found += [attention(model, 64, 1, 8192, 1), attention(model, 1, 8192, 8192), attention(model, 4, 512, 4096)]
        for rows, weight_bytes in ((1, 2), (1, 1), (1, 0.5625), (64, 1), (64, 0.5625), (4096, 1)):
            found.append(linear(model, rows, weight_bytes))
        found += [*pointwise(model, 64), copies(model, 64)]
    return found
