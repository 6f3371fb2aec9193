import pytest
import torch
from matplotlib import pyplot as plt

from highrank.analysis import Analysis
from highrank.analysis.record import AnalysisRecord, full_spectrum
from highrank.report.figures.spectrum import BY_HEAD, FLOOR, plot_spectrum


def make_model(head="mos", values=(8.0, 4.0, 2.0, 0.0), tolerance=8e-14):
    return Analysis(
        name=f"a {head}", head=head, embed_dim=2, rank_bound=4, rank=3, effective_rank=2.0,
        tolerance=tolerance, spectrum=full_spectrum(torch.tensor(values)), kld=None, perplexity=3.0, seconds={},
        peak_bytes=None,
    )  # fmt: skip


def make_record(*models, tokens=4):
    return AnalysisRecord(
        corpus="toy",
        corpus_fingerprint="0",
        split="test",
        tokens=tokens,
        vocabulary=tokens,
        seed=0,
        models=list(models),
        provenance={},
    )


@pytest.fixture
def draw():
    yield plot_spectrum
    plt.close("all")


def points(line):
    return [list(x) for x in line.get_data()]


def test_points_are_the_share_of_singular_values_below(draw):
    (axis,) = draw(make_record(make_model())).axes
    assert points(axis.lines[0]) == [[1.0, 0.5, 0.25, FLOOR], [75.0, 50.0, 25.0, 0.0]]


def test_the_largest_round_off_is_shaded(draw):
    (axis,) = draw(make_record(make_model(), make_model("softmax", tolerance=8e-13))).axes
    assert axis.patches[0].get_x() + axis.patches[0].get_width() == pytest.approx(1e-13, rel=1e-9, abs=0)


def test_each_head_keeps_its_colour(draw):
    (axis,) = draw(make_record(make_model("softmax"), make_model("mos"))).axes
    assert [(line.get_color(), line.get_linestyle()) for line in axis.lines] == [BY_HEAD["softmax"], BY_HEAD["mos"]]


def test_many_models_of_one_head_differ_in_style(draw):
    (axis,) = draw(make_record(*(make_model() for _ in range(9)))).axes
    assert len({(line.get_color(), line.get_linestyle()) for line in axis.lines}) == 9
