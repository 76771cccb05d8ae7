"""The fuzzer: `make fuzz SECONDS=60 SEED=0`; `make fuzz SEED=0 CASE=avx2:17` repeats a finding.

`draw` says which vectors and targets are drawn, `paths` what is asked of the library, `oracle` what
is right, `judge` what is promised, `tally` what was tried and how far off it was.
"""
