#!/usr/bin/env python3
"""check_events.py RUN:FOLDER...: compares event files, as TensorBoard reads them, with metrics.jsonl of their run."""
import json
import math
import os
import sys

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
        if tag != "staleness/updates":
            read[tag] = [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in events.Tensors(tag)]
    want = expected(run)
    assert set(want) == set(read) - {"train/samples_per_s"}, (sorted(want), sorted(read))
    for tag, points in want.items():
        assert [p[0] for p in points] == [p[0] for p in read[tag]], (tag, points, read[tag])
        assert all(math.isclose(a[1], b[1], rel_tol=1e-6) for a, b in zip(points, read[tag])), tag
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


for pair in sys.argv[1:]:
    check(*pair.split(":"))
