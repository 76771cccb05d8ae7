"""Triton's interpreter as near to a GPU, and as fast, as the tests of the kernels need it.

As it comes (3.6), it takes one entry after the other through a reduction of several numbers, in
Python: a hundred times slower than a tree, and with the rounding of no GPU. It cuts float32 off
where a GPU rounds to bfloat16, takes float64 for an integer there, and misreads subnormal
bfloat16. Its maximum of a number and NaN is NaN, where a GPU has the number. And it looks through
the whole language again for every function that a kernel calls, half of all time.
"""

import functools
import os
import signal
import traceback

import numpy as np


@functools.cache
def mend():
    """Replace these, once; only where the interpreter is in use (TRITON_INTERPRET=1).

    A second time would wrap what the first has put there.
    """
    from triton.language import bfloat16, float32, float64
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast = builder.cast_impl

    def rounded(self, source, kind):
        pair = source.dtype.scalar, kind.scalar
        if pair == (bfloat16, float32):
            return handle((source.data.astype(np.uint32) << 16).view(np.float32), float32)
        if pair not in ((float32, bfloat16), (float64, bfloat16)):
            return cast(self, source, kind)
        data = source.data.astype(np.float32)
        bits = data.view(np.uint32).astype(np.uint64)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return handle(np.where(np.isnan(data), 0x7FC0, nearest).astype(np.uint16), bfloat16)

    builder.cast_impl = rounded
    builder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
    builder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)
    scalar = functools.cache(interpreter._get_np_dtype)
    interpreter._get_np_dtype = lambda kind: (
        np.dtype(np.uint64) if kind.scalar.is_ptr() else scalar(kind.scalar)
    )
    interpreter.ReduceOps.generic_reduce = _reduce_in_a_tree
    prepared = set()

    def call(self, *args, **kwargs):
        # The kernel's launch has prepared the language; what lies deeper is prepared for good.
        if self.fn.__module__ not in prepared:
            interpreter._patch_lang(self.fn)
            prepared.add(self.fn.__module__)
        return self.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call


def _reduce_in_a_tree(self, tensors):
    """Join halves until one entry is left along the axis, whose length is a power of two."""
    axis, kinds = self.axis, [tensor.dtype for tensor in tensors]
    arrays = [tensor.handle.data for tensor in tensors]
    if axis is None:
        arrays, axis = [array.reshape(-1) for array in arrays], 0
    while arrays[0].shape[axis] > 1:
        first, second = zip(*(np.split(array, 2, axis) for array in arrays), strict=True)
        parts = [
            self.to_tensor(array, kind)
            for half in (first, second)
            for array, kind in zip(half, kinds, strict=True)
        ]
        joined = self.combine_fn.fn(*parts)
        joined = joined if isinstance(joined, tuple) else (joined,)
        arrays = [tensor.handle.data for tensor in joined]
    if self.keep_dims and self.axis is None:
        arrays = [array.reshape((1,) * len(tensors[0].shape)) for array in arrays]
    elif not self.keep_dims:
        arrays = [array.squeeze(axis) for array in arrays]
    return [self.to_tensor(array, kind) for array, kind in zip(arrays, kinds, strict=True)]


def run_side_by_side(monkeypatch):
    """Make every program of a launch a process over shared memory: some wait for each other."""
    import triton.language as tl
    from triton.runtime import interpreter

    executor = interpreter.GridExecutor
    launch, number = executor.__call__, [0]

    def program_id(self, axis):
        own = number[0] if axis == 0 else 0
        return interpreter.TensorHandle(np.array([own], dtype=np.int32), tl.int32)

    def launch_all(self, *args, **kwargs):
        for arg in args:
            if hasattr(arg, "share_memory_"):
                arg.share_memory_()
        programs, self.grid = self.grid[0], (1,)
        children = []
        for i in range(programs):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                number[0], status = i, 1
                try:
                    launch(self, *args, **kwargs)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            children.append(child)
        ends = [os.waitpid(child, 0)[1] for child in children]
        assert not any(ends), ends

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_get_program_id", program_id)
    monkeypatch.setattr(executor, "__call__", launch_all)
    # What is copied back is a copy of itself, made while others write.
    monkeypatch.setattr(executor, "_restore_args_dev", lambda *_: None)
