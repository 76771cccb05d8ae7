"""Measures of sparsity: those that Hurley and Rickard (2009) compare, and their six criteria.

Every measure takes an array of vectors and an `axis`, as `hoyer.sparseness` does (SciPy's sparse
arrays as well, without making them dense), looks at magnitudes only, and is meant to be larger for
sparser vectors (`h_s` and `h_s_prime`, which are entropies, are the exceptions). `criteria` tests a
measure, one of these or your own, on what Hurley and Rickard ask of one; `MEASURES` has them all by
name, in the paper's order.

References
----------
N. Hurley and S. Rickard, "Comparing Measures of Sparsity", IEEE Transactions on Information
Theory 55(10), 2009.

Examples
--------
>>> from hoyer import measures
>>> x = [[1.0, 1.0, 1.0, 1.0], [4.0, 3.0, 2.0, 1.0], [0.0, -5.0, 0.0, 0.0]]
>>> measures.gini(x)
array([0.  , 0.25, 0.75])
>>> measures.hoyer(x).round(3)
array([0.   , 0.174, 1.   ])
>>> print(measures.criteria(measures.hoyer)["D4"])
D4 Cloning: counterexample: S(1, 2) = 0.1752, but S(1, 2, 1, 2) = 0.1026
"""

from ..api import sparseness as hoyer
from .axioms import CRITERIA, Counterexample, Criterion, Report, Verdict, criteria
from .formulas import (
    MEASURES,
    gini,
    h_g,
    h_s,
    h_s_prime,
    kappa4,
    l0,
    l0_eps,
    l2_over_l1,
    neg_l1,
    neg_log,
    neg_lp,
    neg_lp_minus,
    neg_tanh,
    pq_mean,
    u_theta,
)

__all__ = [
    "CRITERIA",
    "MEASURES",
    "Counterexample",
    "Criterion",
    "Report",
    "Verdict",
    "criteria",
    "gini",
    "h_g",
    "h_s",
    "h_s_prime",
    "hoyer",
    "kappa4",
    "l0",
    "l0_eps",
    "l2_over_l1",
    "neg_l1",
    "neg_log",
    "neg_lp",
    "neg_lp_minus",
    "neg_tanh",
    "pq_mean",
    "u_theta",
]


def __dir__() -> list[str]:
    return __all__
