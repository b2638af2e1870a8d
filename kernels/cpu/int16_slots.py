"""Writing keys and values to a pool of int16, as ``kernels.int16_kv.reference`` lays it out."""

from kernels.cpu.jit import inline
from kernels.cpu.memory import floats, ints, shorts
from kernels.cpu.rounding import round_run
from kernels.int16_kv.reference import RUN, largest, largest_weight

largest_of, largest_weight_of = inline(largest), inline(largest_weight)  # for compiled code to call


@inline
def put_key(x: int, size: int, most: int, head: int, block_size: int, slot: int, numbers: int) -> None:
    """Round a key, float32 ``[size]`` at x, and store it in a slot of the block whose head begins at ``head``.

    numbers: address of int16 ``[size]`` to work with.
    """
    floats(head + block_size * size * 2 + slot * 4, 1)[0] = round_run(x, size, most, numbers)
    pairs = ints(numbers, size // 2)
    target = ints(head + slot // RUN * RUN * size * 2 + slot % RUN * 4, size // 2 * RUN)
    for pair in range(size // 2):
        target[pair * RUN] = pairs[pair]


@inline
def put_value(x: int, size: int, most: int, head: int, block_size: int, slot: int, numbers: int) -> None:
    """As ``put_key``, for a value."""
    floats(head + block_size * size * 2 + slot * 4, 1)[0] = round_run(x, size, most, numbers)
    found = shorts(numbers, size)
    target = shorts(head + slot // 2 * size * 4 + slot % 2 * 2, 2 * size)
    for d in range(size):
        target[2 * d] = found[d]
