#!/usr/bin/env python3
"""check_events.py RUN:FOLDER...: compares event files, as TensorBoard reads them, with metrics.jsonl of their run, and
the histograms of weights of a run that wrote them while it trained with those of its last checkpoint."""
import json
import math
import os
import sys

import h5py
import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util


def expected(run):
    curves = {}
    for line in map(json.loads, open(os.path.join(run, "metrics.jsonl"))):
        for key, value in line.items():
            if key in ("step", "samples", "wall_s", "train_s", "virtual_s") or not isinstance(value, (int, float)):
                continue
            if key == "epoch" and "loss" not in line:
                continue
            split = key.split("_", 1)
            known = split[0] in ("validation", "test", "staleness")
            curves.setdefault("/".join(split) if known else "train/" + key, []).append((line["step"], value))
    return curves


def check(run, folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0, "tensors": 0}).Reload()
    read = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    for tag in events.Tags()["tensors"]:
        if tag != "staleness/updates" and not tag.startswith("weights/"):
            read[tag] = [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in events.Tensors(tag)]
    want = expected(run)
    assert set(want) == set(read) - {"train/samples_per_s"}, (sorted(want), sorted(read))
    for tag, points in want.items():
        assert [p[0] for p in points] == [p[0] for p in read[tag]], (tag, points, read[tag])
        assert all(math.isclose(a[1], b[1], rel_tol=1e-6) for a, b in zip(points, read[tag])), tag
    if folder != "tb/first":  # written after the run
        check_weights(events, run)
    assert read["train/samples_per_s"] and all(value > 0 for _, value in read["train/samples_per_s"])
    staleness = os.path.join(run, "staleness.json")
    if os.path.exists(staleness):
        ranks = json.load(open(staleness))["ranks"]
        count = numpy.zeros(256)
        for rank in ranks:
            count[: len(rank["histogram"])] += rank["histogram"]
        if "staleness/updates" in events.Tags()["histograms"]:
            histogram = events.Histograms("staleness/updates")[-1].histogram_value
            values, total = histogram.bucket, histogram.num
        else:
            values = tensor_util.make_ndarray(events.Tensors("staleness/updates")[-1].tensor_proto)[:, 2]
            total = sum(values)
        used = numpy.nonzero(count)[0]
        assert total == count.sum(), (total, count.sum())
        assert [v for v in values if v] == [c for c in count if c], (values, count[: used[-1] + 1])


def check_weights(events, run):
    """The last histogram of each parameter is that of the values in the last checkpoint."""
    tags = events.Tags()
    named = {tag for tag in tags["histograms"] + tags["tensors"] if tag.startswith("weights/")}
    with h5py.File(os.path.join(run, "checkpoints", "last.h5")) as file:
        arrays = file["weights"].items()
        weights = {"weights/" + name: numpy.array(array, dtype=float).ravel() for name, array in arrays}
    assert named == set(weights), (sorted(named), sorted(weights))
    steps = sorted({line["step"] for line in map(json.loads, open(os.path.join(run, "metrics.jsonl")))
                    if "validation_loss" in line})
    for tag, values in weights.items():
        if tag in tags["histograms"]:
            points = events.Histograms(tag)
            last = points[-1].histogram_value
            edges, counts = [last.min, *last.bucket_limit], last.bucket
            assert math.isclose(last.sum, values.sum(), rel_tol=1e-9, abs_tol=1e-9), tag
        else:
            points = events.Tensors(tag)
            table = tensor_util.make_ndarray(points[-1].tensor_proto)
            edges, counts = [table[0][0], *table[:, 1]], table[:, 2]
        assert [point.step for point in points] == steps, (tag, [point.step for point in points], steps)
        assert edges[0] == values.min() and edges[-1] == values.max(), (tag, edges)
        assert sum(counts) == len(values), tag
        # an edge may be rounded to the other side of a value
        want = numpy.histogram(values, bins=len(counts), range=(values.min(), values.max()))[0]
        assert numpy.abs(numpy.cumsum(counts) - numpy.cumsum(want)).max() <= 1, (tag, counts, want)


for pair in sys.argv[1:]:
    check(*pair.split(":"))
