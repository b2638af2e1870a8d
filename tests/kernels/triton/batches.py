"""What the attention tests share: how the reference and a Triton launcher are compared on one batch."""

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.paged_attention import reference
from tests.kernels.test_paged_attention import Case, Shape, make_case

MIXED: list[Shape] = [(1, 1328), (5, 18), (129, 463)]
HEAD_SIZES = [64, 80, 96, 128, 256]
GROUPS = [1, 3, 4, 7, 8]
BLOCK_SIZES = [16, 32, 64]
__all__ = ["BLOCK_SIZES", "GROUPS", "HEAD_SIZES", "MIXED", "Case", "Shape", "assert_agrees", "make_case", "narrowed"]


def assert_agrees(
    launcher: Callable[..., Tensor],
    case: Case,
    *,
    scale: float = 0.3,
    window: int | None = None,
    softcap: float | None = None,
    tolerance: float = 3e-5,
    **options: object,
) -> None:
    arguments = (case.q, case.pool, case.layer, case.tables, case.query_start, case.kv_lengths, scale, window, softcap)
    found, expected = launcher(*arguments, **options), reference.paged_attention(*arguments)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def narrowed(case: Case, dtype: torch.dtype) -> Case:
    kept = {name: getattr(case, name) for name in ("layer", "tables", "query_start", "kv_lengths", "keys", "values")}
    return Case(q=case.q.to(dtype), pool=case.pool.to(dtype), **kept)
