"""The CPU benchmark: everything side by side in one run, one thread each. `python -m benchmarks`.

Importing the package asks the numerical libraries for one thread, which they only heed before they
are loaded themselves.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
