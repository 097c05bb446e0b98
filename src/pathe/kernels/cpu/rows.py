"""Multiply-add of float32 rows with explicit SIMD blocks, for the Numba kernels.

LLVM vectorises a plain loop only behind a check that the rows don't overlap, which takes longer
than the sum itself for short rows. Here a block is read before it is written, without the check.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from torch import Tensor

WIDTH = 16
_BLOCK = ir.VectorType(ir.FloatType(), WIDTH)


def _block(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> tuple[Any, Any]:
    """Returns the address of a row's block, and its values."""
    data = make_array(kind)(context, builder, array).data  # type: ignore[no-untyped-call]
    place = builder.bitcast(builder.gep(data, [at]), _BLOCK.as_pointer())
    return place, builder.load(place, align=4)


@intrinsic
def _add_product_block(typing: Any, out: Any, x: Any, y: Any, at: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        rows = zip(signature.args[:3], given[:3], strict=True)
        blocks = [_block(context, builder, *row, given[3]) for row in rows]
        (place, before), (_, x), (_, y) = blocks
        product = builder.fmul(x, y, flags=("contract",))
        builder.store(builder.fadd(before, product, flags=("contract",)), place, align=4)
        return context.get_dummy_value()

    return types.void(out, x, y, types.intp), code


@njit(nogil=True, cache=True)
def add_product(out: Any, x: Any, y: Any) -> None:
    """Adds x * y to out, for contiguous rows of equal length."""
    size = out.shape[0]
    whole = size - size % WIDTH
    for at in range(0, whole, WIDTH):
        _add_product_block(out, x, y, at)  # type: ignore[call-arg]
    for i in range(whole, size):
        out[i] += x[i] * y[i]


def arrays(*tensors: Tensor) -> list[Any]:
    """Returns tensors as NumPy arrays that share their memory."""
    return [tensor.detach().numpy() for tensor in tensors]
