"""The multiply-add tile in bytes: int8 by 8-bit weights, added up in int32 for 64 inputs at a time, then in float32.

AVX-512's VNNI multiplies 64 pairs of bytes and adds them up, by fours, in one instruction: twice as many as it does of
16 bits, four times as many as of float32. 8 bits of x suffice where each group of inputs has a step of its own: an
outlier costs no more than its 63 neighbours their last bits.

The instruction takes bytes without a sign on one side. Weights have 128 added to them, for which each sum begins at
-128 times the sum of its group's x. Whole numbers add up exactly and the groups in the order of ``k``, so an element
of the result does not depend on what is computed beside it.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba.core import cgutils

from kernels.cpu.jit import inline
from kernels.cpu.outline import outlined_intrinsic
from kernels.cpu.tile import WIDTH, at_element, floats_of, fused_multiply_add, spread

GROUP = 64  # inputs that share a step
OFFSET = 128  # added to each weight
QUAD = 4  # inputs that one lane multiplies at once
MOST_ROWS = 6
PANELS = {1: 8, 2: 6, 3: 4, 4: 3, 5: 2, 6: 2}  # side by side: of 32 registers 24 hold sums, of each kind a half

_I8, _I32, _I64, _F32 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_SUMS, _FLOATS = ir.VectorType(_I32, WIDTH), ir.VectorType(_F32, WIDTH)
_BYTES = ir.VectorType(_I8, WIDTH * QUAD)
_STEPS = GROUP // QUAD


def supported() -> bool:
    """Whether this processor has the instruction; elsewhere the tile is right, but slow."""
    return bool(get_host_cpu_features().get("avx512vnni", False))


def _one_by_one(builder: Any, sums: Any, w: Any, x: Any) -> Any:
    """What the instruction does, written out: in 32 bits, a quarter of the numbers at a time."""
    of_w = builder.bitcast(w, _SUMS)
    for n in range(QUAD):
        wide_w = builder.and_(builder.lshr(of_w, _all(8 * n)), _all(0xFF))
        wide_x = builder.ashr(builder.shl(x, ir.Constant(_I32, 24 - 8 * n)), ir.Constant(_I32, 24))
        sums = builder.add(sums, builder.mul(wide_w, spread(builder, wide_x, _SUMS)))
    return sums


def _by_instruction(builder: Any, sums: Any, w: Any, x: Any) -> Any:
    kind = ir.FunctionType(_SUMS, [_SUMS] * 3)
    multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
    return builder.call(multiply, [sums, builder.bitcast(w, _SUMS), spread(builder, x, _SUMS)])


def _all(value: int) -> Any:
    return ir.Constant(_SUMS, [value] * WIDTH)


def _loaded(builder: Any, base: Any, index: Any, kind: Any, itemsize: int, align: int = 4) -> Any:
    return builder.load(at_element(builder, base, index, kind, itemsize), align=align)


def _emit(builder: Any, rows: int, panels: int, arguments: list[Any]) -> None:
    """The loop over groups, and in it that over their quads."""
    x, x_stride, w, panel_stride, groups, out, out_stride, scale, of_groups = arguments
    native = supported()
    multiply: Callable[..., Any] = _by_instruction if native else _one_by_one
    fma = fused_multiply_add(builder.module)
    cells = [(r, p) for r in range(rows) for p in range(panels)]
    totals = {cell: cgutils.alloca_once(builder, _FLOATS) for cell in cells}
    for variable in totals.values():
        builder.store(ir.Constant(_FLOATS, [0.0] * WIDTH), variable)

    def number(value: int) -> Any:
        return ir.Constant(_I64, value)

    def turn(sums: dict[Any, Any], at: Any) -> None:
        """The quads numbered ``at``."""
        of_w = [
            _loaded(builder, builder.add(w, builder.mul(panel_stride, number(p))), at, _BYTES, 64, align=1)
            for p in range(panels)
        ]
        for r in range(rows):
            of_x = _loaded(builder, builder.add(x, builder.mul(x_stride, number(r))), at, _I32, 4)
            for p in range(panels):
                sums[r, p] = multiply(builder, sums[r, p], of_w[p], of_x)

    with cgutils.for_range(builder, groups, intp=_I64) as loop:
        worth, begins = [], []
        for r in range(rows):
            at = builder.add(builder.mul(builder.mul(groups, number(2)), number(r)), loop.index)
            worth.append(spread(builder, _loaded(builder, of_groups, at, _F32, 4), _FLOATS))
            at = builder.add(at, groups)
            begins.append(spread(builder, _loaded(builder, of_groups, at, _I32, 4), _SUMS))
        sums = {(r, p): begins[r] for r, p in cells}
        first = builder.mul(loop.index, number(_STEPS))
        if native:
            for step in range(_STEPS):
                turn(sums, builder.add(first, number(step)))
        else:  # a loop, as so many instructions take a compiler minutes
            places = {cell: cgutils.alloca_once(builder, _SUMS) for cell in cells}
            for cell in cells:
                builder.store(sums[cell], places[cell])
            with cgutils.for_range(builder, number(_STEPS), intp=_I64) as steps:
                sums = {cell: builder.load(places[cell]) for cell in cells}
                turn(sums, builder.add(first, steps.index))
                for cell in cells:
                    builder.store(sums[cell], places[cell])
            sums = {cell: builder.load(places[cell]) for cell in cells}
        for r, p in cells:
            found = builder.sitofp(sums[r, p], _FLOATS)
            builder.store(builder.call(fma, [found, worth[r], builder.load(totals[r, p])]), totals[r, p])
    for r, p in cells:
        place = at_element(
            builder, out, builder.add(builder.mul(out_stride, number(r)), number(p * WIDTH)), _FLOATS, 4
        )
        of_columns = floats_of(builder, scale, number(p * WIDTH))
        builder.store(builder.fmul(builder.load(totals[r, p]), of_columns), place, align=4)


def _make(rows: int, panels: int) -> Any:
    return outlined_intrinsic(f"byte_tile_{rows}_{panels}", 9, lambda b, v: _emit(b, rows, panels, v))


_t1, _t2, _t3, _t4, _t5, _t6 = (_make(rows, 1) for rows in range(1, MOST_ROWS + 1))
_m1, _m2, _m3, _m4, _m5, _m6 = (_make(rows, panels) for rows, panels in PANELS.items())


@inline
def _narrow(rows: int, x: int, xs: int, w: int, ps: int, groups: int, out: int, os: int, scale: int, of: int) -> None:
    if rows == 6:
        _t6(x, xs, w, ps, groups, out, os, scale, of)
    elif rows == 5:
        _t5(x, xs, w, ps, groups, out, os, scale, of)
    elif rows == 4:
        _t4(x, xs, w, ps, groups, out, os, scale, of)
    elif rows == 3:
        _t3(x, xs, w, ps, groups, out, os, scale, of)
    elif rows == 2:
        _t2(x, xs, w, ps, groups, out, os, scale, of)
    else:
        _t1(x, xs, w, ps, groups, out, os, scale, of)


@inline
def _wide(rows: int, x: int, xs: int, w: int, ps: int, groups: int, out: int, os: int, scale: int, of: int) -> None:
    if rows == 6:
        _m6(x, xs, w, ps, groups, out, os, scale, of)
    elif rows == 5:
        _m5(x, xs, w, ps, groups, out, os, scale, of)
    elif rows == 4:
        _m4(x, xs, w, ps, groups, out, os, scale, of)
    elif rows == 3:
        _m3(x, xs, w, ps, groups, out, os, scale, of)
    elif rows == 2:
        _m2(x, xs, w, ps, groups, out, os, scale, of)
    else:
        _m1(x, xs, w, ps, groups, out, os, scale, of)


@inline
def byte_columns(
    rows: int, panels: int, x: int, w: int, groups: int, out: int, os: int, scale: int, of_groups: int
) -> None:
    """``out[r, 16 p + c] = scale[16 p + c] * sum over g of step[r, g] * sum over k in g of x[r, k] * weight[p, k, c]``.

    Args:
        rows: 1 to 6.
        panels: any number of them.
        x: address of row 0, int8 ``[rows, groups, 64]``.
        w: address of panel 0, uint8 ``[panels, groups * 16, 16, 4]``, each weight + 128: of an output, four
            neighbouring k are neighbours.
        out: address of row 0, float32; rows lie ``os`` elements apart.
        scale: address of the float32 scales of the columns.
        of_groups: address of ``[rows, 2, groups]``: float32 steps, then int32 -128 times the sums of x.
    """
    most = 8 if rows == 1 else 6 if rows == 2 else 4 if rows == 3 else 3 if rows == 4 else 2
    depth, panel = groups * GROUP, 0
    while panel < panels:
        to, weights, columns = out + panel * WIDTH * 4, w + panel * depth * WIDTH, scale + panel * WIDTH * 4
        if panels - panel >= most:
            _wide(rows, x, depth, weights, depth * WIDTH, groups, to, os, columns, of_groups)
            panel += most
        else:
            _narrow(rows, x, depth, weights, depth * WIDTH, groups, to, os, columns, of_groups)
            panel += 1
