"""Helpers for the tests of hoyer.torch: small networks, their training, where a warning points."""

import io
import linecache
from pathlib import Path

import torch
from torch import nn

torch.set_num_threads(1)


def network():
    return nn.Sequential(nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 3))


def train(model, optimizer, steps=3, loss=None):
    x, y = torch.randn(8, 20), torch.randn(8, 3)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()


class Training:
    """A weight, an optimizer, and steps with random gradients."""

    def __init__(self, *shapes, make=torch.optim.SGD, **options):
        self.weights = [nn.Parameter(torch.randn(shape)) for shape in shapes or [(4, 20)]]
        self.optimizer = make(self.weights, lr=0.01, **options)

    @property
    def weight(self):
        return self.weights[0]

    def step(self, times=1):
        for _ in range(times):
            for weight in self.weights:
                weight.grad = torch.randn_like(weight)
            self.optimizer.step()


def round_trip(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def line_of(told):
    """Return the line that the one warning shows; it must be one of the tests'."""
    (warning,) = told
    assert Path(warning.filename).parent == Path(__file__).parent
    return linecache.getline(warning.filename, warning.lineno).strip()
