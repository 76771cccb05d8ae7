"""Who computes: the compiled core, plain array operations, or Triton kernels."""
