"""hoyer.torch.sparseness_report: how sparse a network is."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402
from training import network  # noqa: E402

import hoyer  # noqa: E402
import hoyer.torch  # noqa: E402
from hoyer.torch import (  # noqa: E402
    ProjectAfterStep,
    parametrizations,
    sparseness_report,
)

pytestmark = pytest.mark.usefixtures("torch_seed")


class TestReport:
    def test_records_and_table(self):
        model = network()
        parametrizations.sparseness(model[0], "weight", 0.8, learnable=True)
        with torch.no_grad():
            model[2].weight.zero_()
        report = sparseness_report(model)
        assert [r.name for r in report.records] == ["0.weight", "2.weight"]
        first, second = report.records
        weight = model[0].weight.detach().double()
        assert first.shape == (12, 20)
        assert first.sparseness == pytest.approx(0.8, abs=1e-6)
        assert first.lowest <= first.sparseness <= first.highest
        assert first.zeros == pytest.approx(float((weight == 0).double().mean()))
        assert (first.l1, first.l2) == pytest.approx(
            (float(weight.abs().sum()), float(weight.norm()))
        )
        assert math.isnan(second.sparseness)
        assert second.zeros == 1
        lines = str(report).splitlines()
        assert lines[0].split() == [
            "tensor",
            "shape",
            "sparseness",
            "lowest",
            "highest",
            "zeros",
            "l1",
            "l2",
        ]
        assert lines[2].startswith("0.weight  12 x 20          0.800")
        assert lines[5].startswith("all       15 vectors       0.800")
        assert lines[6].startswith("2.weight: 3 of 3 vectors have no sparseness")
        assert len(lines) == 7
        assert repr(report) == str(report)

    def test_shared_and_small_tensors(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        assert [r.name for r in sparseness_report(model).records] == ["0.weight"]
        names = [r.name for r in sparseness_report(model, least_axes=1).records]
        assert names == ["0.weight", "0.bias", "1.bias"]

    def test_a_sequence_of_records(self):
        report = sparseness_report(network())
        assert len(report) == 2
        assert [record.name for record in report] == ["0.weight", "2.weight"]
        assert report[-1].shape == (3, 12)
        assert "left out of the mean" in type(report[0]).__doc__

    def test_all_tensors_as_one(self):
        model = network()
        report = sparseness_report(model)
        weights = [model[i].weight.detach().double() for i in (0, 2)]
        sigmas = torch.cat([hoyer.sparseness(weight) for weight in weights])
        every = torch.cat([weight.reshape(-1) for weight in weights])
        total = report.total
        assert total.sparseness == pytest.approx(float(sigmas.mean()))
        assert (total.lowest, total.highest) == (float(sigmas.min()), float(sigmas.max()))
        assert total.zeros == pytest.approx(float((every == 0).double().mean()))
        assert total.l1 == pytest.approx(float(every.abs().sum()))
        assert total.l2 == pytest.approx(float(every.norm()))
        assert (total.vectors, total.shape) == (len(sigmas), (len(every),))
        assert str(report).splitlines()[-1].split()[:3] == ["all", str(len(sigmas)), "vectors"]
        assert sparseness_report(nn.ReLU()).total is None
        alone = sparseness_report(nn.Linear(1, 3))
        assert math.isnan(alone.total.sparseness)
        assert "all" not in str(alone)

    def test_the_mean_is_what_is_asked_of_all_together(self):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        weights = [model[0].weight, model[2].weight]
        ProjectAfterStep(optimizer, weights, 0.7, together=True).project()
        assert sparseness_report(model).total.sparseness == pytest.approx(0.7, abs=1e-6)

    @pytest.mark.parametrize("tool", ["prune", "spectral_norm", "weight_norm"])
    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_tensors_that_hooks_compute(self, tool):
        layer = nn.Linear(20, 6)
        if tool == "prune":
            prune.l1_unstructured(layer, "weight", amount=0.5)
        else:
            getattr(nn.utils, tool)(layer)
        layer(torch.randn(2, 20))
        (record,) = sparseness_report(layer)
        assert record.name == "weight"
        assert record.zeros == (0.5 if tool == "prune" else 0)
        assert record.l2 == pytest.approx(float(layer.weight.detach().norm()), rel=1e-5)

    def test_tied_to_a_parametrized_tensor(self):
        model = nn.ModuleDict({"a": nn.Linear(8, 4), "b": nn.Linear(8, 4)})
        model["b"].weight = model["a"].weight
        parametrizations.sparseness(model["a"], "weight", 0.8)
        first, second = sparseness_report(model)
        assert (first.name, second.name) == ("a.weight", "b.weight")
        assert second.zeros == 0 < first.zeros

    def test_computed_tensors_are_not_taken_for_each_other(self):
        layers = [parametrizations.sparseness(nn.Linear(8, 4), "weight", 0.5) for _ in range(20)]
        assert len(sparseness_report(nn.Sequential(*layers))) == 20

    def test_vectors_without_a_sparseness_are_told(self):
        layer = nn.Linear(8, 4)
        with torch.no_grad():
            layer.weight[0] = 0
            layer.weight[1, 1] = math.nan
        report = sparseness_report(layer)
        assert (report[0].vectors, report[0].undefined) == (4, 2)
        assert report[0].sparseness == pytest.approx(
            float(hoyer.sparseness(layer.weight.detach()[2:]).mean())
        )
        assert "weight: 2 of 4 vectors have no sparseness" in str(report)
        (single,) = sparseness_report(nn.Linear(1, 3))
        assert (single.vectors, single.undefined) == (3, 3)

    @pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
    def test_what_cannot_be_measured_is_told(self):
        model = nn.ModuleDict(
            {
                "empty": nn.Linear(0, 3),
                "lazy": nn.LazyLinear(3),
                "meta": nn.Linear(2, 3, device="meta"),
            }
        )
        report = sparseness_report(model)
        assert len(report) == 0
        lines = str(report).splitlines()
        assert lines[0] == "no weights to measure"
        assert "empty.weight: no entries in shape (3, 0)" in lines
        assert "meta.weight: no numbers on device meta" in lines
        assert lines[2].startswith("lazy.weight: not initialized")
        assert str(sparseness_report(nn.ReLU())) == "no weights to measure"

    def test_dim(self):
        layer = nn.Linear(20, 6)
        (record,) = sparseness_report(layer, dim=0)
        expected = hoyer.sparseness(layer.weight.detach(), axis=0)
        assert record.vectors == 20
        assert record.highest == pytest.approx(float(expected.max()), rel=1e-5)
        with pytest.raises(IndexError, match=r"dim=2: weight of shape \(6, 20\) has 2 axes"):
            sparseness_report(layer, dim=2)
        with pytest.raises(ValueError, match="dim='rows'"):
            sparseness_report(layer, dim="rows")

    @pytest.mark.parametrize("given", [torch.ones(3, 4), nn.Linear(3, 4).state_dict()])
    def test_what_is_no_model(self, given):
        with pytest.raises(TypeError, match=r"pass the nn.Module itself"):
            sparseness_report(given)
