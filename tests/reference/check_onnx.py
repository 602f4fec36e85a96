#!/usr/bin/env python3
"""Checks the files of tests/unit/test_onnx.c with onnxruntime: the models are valid, and the scores are equal.

    TRM_ONNX_OUT=DIR tests/unit/test_onnx      writes the models, inputs and scores
    python3 check_onnx.py DIR [--record]       compares; --record: writes the graphs checked to onnx.txt
Needs numpy, onnx and onnxruntime.
"""
import os
import sys

import numpy
import onnx
import onnxruntime

folder, record = sys.argv[1], "--record" in sys.argv[2:]
worst, lines = 0, []
for line in open(os.path.join(folder, "manifest.txt")):
    number, digest, text = line.rstrip("\n").split(" ", 2)
    name = os.path.join(folder, number)
    onnx.checker.check_model(name + ".onnx", full_check=True)
    session = onnxruntime.InferenceSession(name + ".onnx", providers=["CPUExecutionProvider"])
    given, = session.get_inputs()
    x = numpy.fromfile(name + ".in", dtype=numpy.float32).reshape([-1] + given.shape[1:])
    if given.type == "tensor(int64)":
        x = x.astype(numpy.int64)
    want = numpy.fromfile(name + ".out", dtype=numpy.float32)
    for rows in x.shape[0], 1:  # any batch size
        scores, = session.run(["scores"], {given.name: x[:rows]})
        part = want.reshape(x.shape[0], -1)[:rows]
        difference = numpy.abs(scores.reshape(rows, -1) - part).max() / max(1, numpy.abs(part).max())
        worst = max(worst, difference)
        if not difference <= 1e-4:
            sys.exit(f"{text}: scores differ by {difference}")
    if text != "vgg11":
        lines.append(f"{digest} {text}\n")
print(f"{len(lines)} models and vgg11 confirmed by onnxruntime {onnxruntime.__version__}, "
      f"largest difference of scores {worst:.2g}")
if record:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx.txt"), "w") as out:
        out.writelines(lines)
