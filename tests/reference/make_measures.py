#!/usr/bin/env python3
"""Records measures of scikit-learn, for tests/unit/test_measures.c.

    python3 make_measures.py [FOLDER]      writes measures.txt (default: beside this script)

Same format as make_reference.py. Scores are float32 numbers, probabilities are computed from them in float64. An array
named as a measure has its value; nan: it is not defined. The calibration error is Guo et al. (2017), equation 3, with
the bins of sklearn.calibration.calibration_curve.
"""
import os
import sys
import warnings

import numpy as np
import sklearn
from sklearn import metrics
from sklearn.calibration import calibration_curve

random = np.random.default_rng(5)


class Writer:
    def __init__(self, path):
        self.file = open(path, "w")
        self.file.write(f"# Measures of classifications and regressions.\n# Made with scikit-learn {sklearn.__version__}.\n")

    def case(self, name, loss, scores, target, measures):
        self.file.write(f"case {name}\nset loss {loss}\n")
        self.array("scores", scores)
        self.array("target", target)
        for key, value in measures.items():
            self.file.write(f"array {key}\n{value:.12g}\n")

    def array(self, name, values):
        self.file.write(" ".join(["array", name, *map(str, values.shape)]) + "\n")
        text = [f"{v:.9g}" for v in values.flatten()]
        for i in range(0, len(text), 20):
            self.file.write(" ".join(text[i:i + 20]) + "\n")


def probabilities(scores):
    z = scores.astype(np.float64)
    if z.shape[1] == 1:
        return np.hstack([1 / (1 + np.exp(z)), 1 / (1 + np.exp(-z))])
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def calibration_error(p, right, bins=15):
    frequency, mean = calibration_curve(right, p, n_bins=bins)
    edges = np.linspace(0, 1, bins + 1)
    count = np.bincount(np.searchsorted(edges[1:-1], p), minlength=bins)
    return np.sum(count[count > 0] * np.abs(frequency - mean)) / len(p)


def auc(target, scores, p):
    if scores.shape[1] == 1:
        return metrics.roc_auc_score(target, scores[:, 0].astype(np.float64))
    classes = p.shape[1]
    if classes == 2:
        return metrics.roc_auc_score(target, p[:, 1])
    present = np.unique(target)
    if len(present) == classes:
        return metrics.roc_auc_score(target, p, multi_class="ovr", average="macro")
    if len(present) == 1:
        return np.nan
    return np.mean([metrics.roc_auc_score(target == k, p[:, k]) for k in present])


def classification(out, name, loss, scores, target):
    scores = scores.astype(np.float32)
    p = probabilities(scores)
    predicted = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
    measures = {
        "f1_macro": metrics.f1_score(target, predicted, average="macro"),
        "f1_micro": metrics.f1_score(target, predicted, average="micro"),
        "auc": auc(target, scores, p),
    }
    if p.shape[1] > 5:
        measures["top5"] = metrics.top_k_accuracy_score(target, scores, k=5, labels=np.arange(p.shape[1]))
    if loss != "hinge":
        measures["ece"] = calibration_error(p.max(axis=1), predicted == target)
    out.case(name, loss, scores, target, measures)


def regression(out, name, scores, target):
    scores, target = scores.astype(np.float32), target.astype(np.float32)
    y, z = target.astype(np.float64), scores.astype(np.float64)
    out.case(name, "mean_squared_error", scores, target, {
        "mae": metrics.mean_absolute_error(y, z),
        "rmse": metrics.root_mean_squared_error(y, z),
        "r2": metrics.r2_score(y, z),
    })


def labels(out, name, scores, target):
    scores = scores.astype(np.float32)
    predicted = (scores > 0).astype(int)
    out.case(name, "binary_cross_entropy", scores, target, {
        "f1_macro": metrics.f1_score(target, predicted, average="macro"),
        "f1_micro": metrics.f1_score(target, predicted, average="micro"),
    })


def noisy(rows, classes, target, size, step=0.25):
    """Scores with ties, within a row and among rows."""
    z = random.normal(size=(rows, classes)) * size
    if classes == 1:
        z[:, 0] += size * (2 * target - 1) / 2
    else:
        z[np.arange(rows), target] += size
    return np.round(z / step) * step


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    warnings.simplefilter("ignore")
    out = Writer(os.path.join(folder, "measures.txt"))
    t = random.integers(8, size=120)
    t[:8] = np.arange(8)
    z = noisy(120, 8, t, 1, step=0.5)
    z[:10] = 1.5  # equal scores
    classification(out, "ties", "softmax_cross_entropy", z, t)
    classification(out, "saturated", "softmax_cross_entropy", noisy(60, 4, np.arange(60) % 4, 60), np.arange(60) % 4)
    t = random.choice([0, 1, 2, 4, 6], size=60)
    z = noisy(60, 7, t, 1)
    z[:, 5] = -4  # neither rows nor predictions
    z[0, 3] = 6  # predictions without rows
    classification(out, "without rows", "softmax_cross_entropy", z, t)
    t = np.full(20, 2)
    classification(out, "single class", "softmax_cross_entropy", noisy(20, 6, t, 1), t)
    t = random.integers(2, size=80)
    classification(out, "two classes", "softmax_cross_entropy", noisy(80, 2, t, 1), t)
    classification(out, "one score", "logistic", noisy(80, 1, t, 1), t)
    classification(out, "margins", "hinge", noisy(80, 1, t, 1), t)
    t = np.arange(30) % 5
    z = np.zeros((30, 5))  # probabilities of 1/5, the end of a bin; in the next one all are wrong
    z[t > 0, 0] = 0.25
    classification(out, "end of a bin", "softmax_cross_entropy", z, t)
    t = np.array([1, 0])
    classification(out, "two rows", "logistic", np.array([[0.5], [0.25]]), t)
    y = random.normal(size=(50, 3)) * [1, 10, 0] + [1000, 0, 2.5]
    regression(out, "several values", y + random.normal(size=(50, 3)), y)
    y = random.normal(size=(40, 1)) + 1e4
    regression(out, "one value", y + random.normal(size=(40, 1)) / 4, y)
    regression(out, "constant", np.full((9, 1), 2.5), np.full((9, 1), 2.5))
    regression(out, "one row", np.array([[1.5]]), np.array([[1.0]]))
    t = random.integers(2, size=(60, 5))
    t[:, 3] = 0  # a label without rows
    z = np.round(2 * t - 1 + 1.5 * random.normal(size=t.shape), 2)
    z[:, 4] = -1  # one that is never predicted
    labels(out, "labels", z, t)
    z[:, 3] = -1  # neither rows nor predictions
    labels(out, "labels, one absent", z, t)


if __name__ == "__main__":
    main()
