"""
Topics of news
==============

395 Reuters stories, which come with the package lda, as a sparse matrix of word counts. A topic of
high sparseness consists of few words; a story with a sparse code is about few topics.
"""

import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
from pictures import OUT
from shipped import Reuters, Vectors, reuters
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer

from hoyer.decomposition import SparseNMF

mpl.use("Agg")
from matplotlib import pyplot as plt

TOPICS, WORDS = 12, 8
COMPONENTS, CODES = 0.9, 0.75


def strongest(values: Vectors, count: int) -> list[int]:
    """Return where the largest entries are, the largest first."""
    return [int(index) for index in np.argsort(-values)[:count]]


def describe(news: Reuters, topics: Vectors, codes: Vectors) -> None:
    """Print the words of every topic and the story that is most about it."""
    for number, (topic, use) in enumerate(zip(topics, codes.T, strict=True), 1):
        words = ", ".join(news.words[index] for index in strongest(topic, WORDS))
        title = news.titles[int(np.argmax(use))].split(maxsplit=1)[1]
        print(f"{number:3}  {words}  ({(topic > 0).sum()} words)\n     {title}\n")


def picture(news: Reuters, topics: Vectors, path: Path) -> None:
    """Draw the weights of the first words of each topic."""
    figure, axes = plt.subplots(3, 4, figsize=(11, 7), layout="constrained")
    for axis, (number, topic) in zip(axes.flat, enumerate(topics, 1), strict=True):
        best = strongest(topic, WORDS)
        axis.barh([news.words[index] for index in best], topic[best], color="#0072B2")
        axis.invert_yaxis()
        axis.set_title(f"topic {number}: {(topic > 0).sum()} words", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.set_xticks([])
        axis.spines[["top", "right", "bottom"]].set_visible(False)
    figure.suptitle(
        f"Topics of {len(news.titles)} news stories: sparseness {COMPONENTS} of the topics, "
        f"{CODES} of each story's code"
    )
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"picture: {path}")


def main() -> None:
    """Find the topics, print and draw them."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    news = reuters()
    X = TfidfTransformer(sublinear_tf=True).fit_transform(news.counts)
    model = SparseNMF(
        TOPICS, components_sparseness=COMPONENTS, codes_sparseness=CODES, random_state=0
    )
    codes = model.fit_transform(X)
    print(
        f"{X.shape[0]} stories, {X.shape[1]} words, {100 * X.nnz / X.shape[0] / X.shape[1]:.1f} % "
        f"of the entries; {(codes > 0).sum(axis=1).mean():.1f} topics per story\n"
    )
    describe(news, model.components_, codes)
    picture(news, model.components_, OUT / "topics.png")


if __name__ == "__main__":
    main()
