"""What the linear maps of both kinds of weights share: how the work is cut, and the bias."""

from kernels.cpu.jit import inline
from kernels.cpu.memory import floats

ROW_BLOCK = 96  # rows of x that stay in the second-level cache while a group of panels goes over them
MAX_GROUP = 12  # panels of one task


@inline
def add_bias(out: int, stride: int, rows: int, bias: int, columns: int) -> None:
    """Add float32 ``[columns]`` at ``bias`` to rows that lie ``stride`` elements apart."""
    added = floats(bias, columns)
    for row in range(rows):
        sums = floats(out + row * stride * 4, columns)
        for column in range(columns):
            sums[column] += added[column]


def panels_per_task(panels: int, num_threads: int) -> int:
    """Enough tasks that no member waits long for another."""
    return min(MAX_GROUP, max(1, panels // (4 * num_threads)))
