"""
FSDP2: stop and resume, bit for bit
===================================

Two processes train a sparse network. The weights of the first hidden layer have a sparseness that
is learned (a parametrization); those of the second are projected after each step. Each process
holds half of every weight. Halfway through, everything is saved by `torch.distributed.checkpoint`,
and a second, newly built network resumes from there. It must end with exactly the same bits as the
first, which trained without interruption.

``python examples/fsdp.py`` takes a few seconds on two processors, and needs neither a GPU nor data:

.. literalinclude:: /pictures/fsdp.txt
   :language: none
"""

# sphinx_gallery_thumbnail_path = "pictures/fsdp.png"

import argparse
import tempfile
from pathlib import Path
from typing import Any

try:
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.multiprocessing.spawn import spawn
except ModuleNotFoundError as error:
    raise SystemExit(
        f"{error.name} is missing: `pip install '.[torch]'` installs what this needs"
    ) from None

from hoyer.torch import ProjectAfterStep, parametrizations, sparseness_report

checkpoints: Any = checkpoint
INPUTS, HIDDEN, CLASSES, BATCH = 64, 32, 4, 128
PROCESSES = 2


def network(mesh: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a network, half of which each process has, and its optimizer."""
    torch.manual_seed(0)
    layers = [nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CLASSES)]
    parametrizations.sparseness(layers[0], "weight", 0.6, learnable=True)
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ProjectAfterStep(optimizer, (layers[1], "weight"), 0.7)
    return model, optimizer


def batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """Return points around the corners of a square in many dimensions; each process has its own."""
    generator = torch.Generator().manual_seed(PROCESSES * step + rank)
    labels = torch.randint(CLASSES, (BATCH,), generator=generator)
    corners = torch.eye(CLASSES, INPUTS)[labels] * 3
    return corners + torch.randn(BATCH, INPUTS, generator=generator), labels


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, rank: int) -> float:
    """Train, and return the last loss."""
    loss = torch.zeros(())
    for step in steps:
        x, y = batch(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def weights(model: nn.Module) -> list[Tensor]:
    """Return all parameters as every process sees them."""
    stored: list[Any] = list(model.parameters())
    return [parameter.detach().full_tensor() for parameter in stored]


def save(folder: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Save everything; each process writes what it has."""
    own, steps = get_state_dict(model, optimizer)
    checkpoints.save({"model": own, "optimizer": steps}, checkpoint_id=folder)


def load(folder: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Go on where `save` was called."""
    own, steps = get_state_dict(model, optimizer)
    checkpoints.load({"model": own, "optimizer": steps}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=own, optim_state_dict=steps)


def run(rank: int, folder: str, steps: int) -> None:
    """Do what one of the processes does."""
    torch.set_num_threads(1)
    meeting, saved = Path(folder) / "meeting", str(Path(folder) / "saved")
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=PROCESSES
    )
    mesh = init_device_mesh("cpu", (PROCESSES,))
    model, optimizer = network(mesh)
    train(model, optimizer, range(steps // 2), rank)
    save(saved, model, optimizer)
    loss = train(model, optimizer, range(steps // 2, steps), rank)

    again, other = network(mesh)
    load(saved, again, other)
    train(again, other, range(steps // 2, steps), rank)
    same = all(map(torch.equal, weights(model), weights(again)))
    # All processes measure; one of them shows it.
    report = sparseness_report(model)
    if rank == 0:
        print(report)
        print(f"loss {loss:.3f} after {steps} steps")
        print(f"stopped after {steps // 2} and gone on: {'the same' if same else 'OTHER'} bits")
    dist.destroy_process_group()
    if not same:
        raise SystemExit("the network that went on from the checkpoint is another one")


def main() -> None:
    """Start the processes."""
    parser = argparse.ArgumentParser(description="Train a sparse network under FSDP2.")
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        spawn(run, (folder, steps), nprocs=PROCESSES)


if __name__ == "__main__":
    main()
