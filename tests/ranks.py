"""Processes that run functions of the tests together, as ranks of PyTorch; none waits for ever.

They are started once and used again. A function is named by its module, which each process imports,
and gets the mesh of as many ranks as take part. If one of them fails or says nothing in time, all
are ended, and new ones are started for the next function.
"""

import datetime
import importlib
import itertools
import multiprocessing
import tempfile
import time
import traceback
from pathlib import Path

COUNT = 4
PATIENCE = 60
"""Seconds after which the ranks are given up."""
SHAPES = ((4,), (2, 2), (2,), (1,))
"""Those of meshes; the first ranks are in them."""


class Ranks:
    """Processes with ranks 0 to 3."""

    def __init__(self):
        self._processes, self._pipes = [], []
        self._folder = tempfile.TemporaryDirectory()
        self._meetings = itertools.count()

    def run(self, function, *arguments, shape=(COUNT,)):
        """Call a function with a mesh of this shape, and arguments, in its ranks; return results.

        They are in the order of the ranks, and must be picklable.
        """
        if not self._processes:
            self._start()
        count = 4 if shape == (2, 2) else shape[0]
        task = function.__module__, function.__qualname__, shape, arguments
        for pipe in self._pipes[:count]:
            pipe.send(task)
        found = self._answers(self._pipes[:count])
        errors = [f"rank {rank}: {said}" for rank, (fine, said) in found.items() if not fine]
        silent = [rank for rank in range(count) if rank not in found]
        if silent:
            self.end()
            # One that raised an error is what the others wait for.
            told = "\n".join([f"ranks {silent} said nothing for {PATIENCE} seconds", *errors])
            raise TimeoutError(told)
        if errors:
            self.end()
            raise AssertionError("\n".join(errors))
        return [found[rank][1] for rank in range(count)]

    @staticmethod
    def _answers(pipes):
        """Return what ranks answered in time, by their numbers."""
        deadline, found = time.monotonic() + PATIENCE, {}
        for rank, pipe in enumerate(pipes):
            # After the deadline the others may still have said why.
            if pipe.poll(max(deadline - time.monotonic(), 0.1)):
                try:
                    found[rank] = pipe.recv()
                except EOFError:
                    found[rank] = False, "the process has ended"
        return found

    def end(self):
        """End all processes."""
        for process in self._processes:
            process.kill()
            process.join()
        self._processes, self._pipes = [], []

    def close(self):
        """End all processes for good."""
        self.end()
        self._folder.cleanup()

    def _start(self):
        context = multiprocessing.get_context("spawn")
        # By a file: a port that is free now may be taken a moment later.
        meeting = Path(self._folder.name) / f"meeting-{next(self._meetings)}"
        for rank in range(COUNT):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, str(meeting), theirs), daemon=True)
            process.start()
            self._processes.append(process)
            self._pipes.append(mine)


def _serve(rank, meeting, pipe):
    """Call functions until nobody asks for more."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    torch.set_num_threads(1)
    patience = datetime.timedelta(seconds=PATIENCE / 2)
    where = f"file://{meeting}"
    dist.init_process_group(
        "gloo", init_method=where, rank=rank, world_size=COUNT, timeout=patience
    )
    meshes = {}
    for shape in SHAPES:
        names = ("data", "tensor")[: len(shape)]
        ranks = torch.arange(4 if shape == (2, 2) else shape[0]).reshape(shape)
        meshes[shape] = DeviceMesh("cpu", ranks, mesh_dim_names=names)
    while True:
        try:
            module, name, shape, arguments = pipe.recv()
        except EOFError:
            return
        try:
            function = importlib.import_module(module.rpartition(".")[2])
            for part in name.split("."):
                function = getattr(function, part)
            pipe.send((True, function(meshes[shape], *arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
