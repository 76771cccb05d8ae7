"""Matrix factorizations whose factors have a chosen sparseness, as scikit-learn estimators.

`SparseNMF` factors non-negative data, `SparseDictionaryLearning` data of any sign. They need
scikit-learn: ``pip install 'hoyer[sklearn]'``.
"""

try:
    import sklearn  # noqa: F401 - only to say what is missing
except ImportError:
    raise ImportError(
        "hoyer.decomposition needs scikit-learn: pip install 'hoyer[sklearn]'"
    ) from None

from .dictionary import SparseDictionaryLearning
from .nmf import SparseNMF

__all__ = ["SparseDictionaryLearning", "SparseNMF"]


def __dir__() -> list[str]:
    return __all__
