"""The folder TRIREME_FILES is made by tests/python.sh; expected values are read from the files by other means."""
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

import trireme

files = Path(os.environ["TRIREME_FILES"])
# what the first program that trained wrote (tests/reference/make_first.sh)
first = Path(__file__).resolve().parents[2] / "tests/reference/first"


def test_run():
    run = trireme.read_run(files / "first")
    lines = [json.loads(line) for line in open(files / "first/metrics.jsonl")]
    train = [line for line in lines if "loss" in line]
    assert list(run.train["loss"]) == [line["loss"] for line in train]
    assert list(run.train["step"]) == [line["step"] for line in train]
    assert run.train["loss"].dtype == np.float64
    assert len(run.evaluations) == len(lines) - len(train) == 3
    assert run.evaluations["test_accuracy"].iloc[-1] == run.summary["test_accuracy"]
    assert run.summary_frame().loc["first", "steps"] == 36
    assert run.record_frame().loc["first", "software.compiler"]
    assert "epochs: 2" in run.config_text
    assert run.staleness().empty


def test_staleness():
    table = trireme.read_run(files / "async").staleness()
    ranks = json.load(open(files / "async/staleness.json"))["ranks"]
    assert list(table.index) == [rank["rank"] for rank in ranks]
    assert list(table.sum(axis=1)) == [rank["updates"] for rank in ranks]


def test_run_that_was_killed(tmp_path):
    shutil.copytree(files / "first", tmp_path / "run")
    metrics = tmp_path / "run/metrics.jsonl"
    with open(metrics, "a") as file:
        file.write('{"step":5,"epoch":0,"samples":100,"wall_s":1,"loss":null,"lr":0.1}\n{"step":6,"lo')
    (tmp_path / "run/summary.json").unlink()
    run = trireme.read_run(tmp_path / "run")
    assert run.summary == {} and list(run.train["step"]) == [1, 4, 5]
    assert np.isnan(run.train["loss"].iloc[-1])
    with open(metrics, "a") as file:
        file.write("\n{}\n")
    with pytest.raises(trireme.ReadError, match=r"metrics.jsonl:\d+: damaged line"):
        trireme.read_run(tmp_path / "run")


def test_missing():
    with pytest.raises(trireme.ReadError, match="nothing/metrics.jsonl: No such file"):
        trireme.read_run(files / "nothing")
    with pytest.raises(trireme.ReadError, match="nothing.h5: No such file"):
        trireme.read_dataset(files / "nothing.h5")
    with pytest.raises(trireme.ReadError, match="results.csv: No such file"):
        trireme.read_sweep(files / "first")


def test_sweep():
    sweep = trireme.read_sweep(files / "sweep")
    assert sorted(sweep.results["optim.lr"]) == [0.05, 0.1] and len(sweep.runs) == 4
    runs = [sweep.read_run(name) for name in sweep.runs["run"]]
    curve = trireme.compare(runs, y="loss", points=10)
    assert len(curve) == 10 and (curve["min"] <= curve["mean"]).all() and (curve["mean"] <= curve["max"]).all()
    last = [run.train["loss"].iloc[-1] for run in runs]
    assert curve["mean"].iloc[-1] == pytest.approx(np.mean(last), abs=1e-12)
    with pytest.raises(trireme.ReadError, match="no values speed over step"):
        trireme.compare(runs, y="speed")


def test_dataset():
    data = trireme.read_dataset(files / "digits.h5")
    assert (data.kind, data.target, data.classes, data.shape) == ("image", "class", 10, (1, 28, 28))
    assert data.splits["train"]["x"].shape[0] == 400 and data.splits["test"]["y"].shape == (100,)
    assert set(data.splits["train"]) == {"x", "y"}
    x = data.splits["train"]["x"]
    stored = subprocess.run(["h5dump", "-d", "/train/x", "-b", "LE", "-o", "/dev/stdout", str(files / "digits.h5")],
                            capture_output=True) if shutil.which("h5dump") else None
    if stored and stored.returncode == 0:
        assert x.tobytes() in stored.stdout
    with h5py.File(files / "digits.h5") as file:
        recorded = file["train/x"].attrs["sha256"]
    recorded = recorded.decode() if isinstance(recorded, bytes) else recorded
    assert hashlib.sha256(x.tobytes()).hexdigest() == recorded
    values = data.values("train")
    assert values.dtype == np.float32 and values.max() == np.float32(data.scale * x.max() + data.shift)


def test_checkpoint():
    checkpoint = trireme.read_checkpoint(files / "first")
    summary = json.load(open(files / "first/summary.json"))
    assert sum(w.size for w in checkpoint.weights.values()) == summary["parameters"]
    assert checkpoint.attributes["weights_sha256"] == summary["weights_sha256"]
    assert all(w.dtype == np.float32 for w in checkpoint.weights.values())
    assert "linear" in checkpoint.model or "mlp" in checkpoint.model
    assert set(checkpoint.states) == {"momentum"}
    assert {n: a.shape for n, a in checkpoint.states["momentum"].items()} == \
        {n: a.shape for n, a in checkpoint.weights.items()}
    # the network computes the scores that trireme predict wrote
    data = trireme.read_dataset(files / "digits.h5")
    x = data.values("test").reshape(100, -1)
    matrices = [w for w in checkpoint.weights.values() if w.ndim == 2]
    biases = [w for w in checkpoint.weights.values() if w.ndim == 1]
    orient = [w if w.shape[0] == n else w.T for w, n in zip(matrices, (784, 16))]
    scores = np.maximum(x @ orient[0] + biases[0], 0) @ orient[1] + biases[1]
    with h5py.File(files / "predictions.h5") as file:
        assert (scores.argmax(axis=1) == file["class"][()]).all()


def test_wrong_files(tmp_path):
    with pytest.raises(trireme.ReadError, match="not a checkpoint"):
        trireme.read_checkpoint(files / "digits.h5")
    with pytest.raises(trireme.ReadError, match="not a dataset"):
        trireme.read_dataset(files / "first/checkpoints/last.h5")
    cut = tmp_path / "cut.h5"
    cut.write_bytes((files / "digits.h5").read_bytes()[:5000])
    with pytest.raises(trireme.ReadError, match="cut.h5: not an HDF5 file, or damaged"):
        trireme.read_dataset(cut)


@pytest.mark.skipif(not (files / "secret.h5").exists(), reason="this build has no libsodium")
def test_encrypted():
    with pytest.raises(trireme.ReadError, match="secret.h5: encrypted; trireme key decrypt"):
        trireme.read_dataset(files / "secret.h5")


def test_run_of_the_first_version():
    run = trireme.read_run(first / "run")
    assert list(run.train["step"]) == list(range(1, 13)) and list(run.evaluations["step"]) == [4, 8, 12]
    assert run.train["loss"].iloc[0] == 1.281318359904819
    assert run.evaluations["test_accuracy"].iloc[-1] == run.summary["test_accuracy"] == 2 / 3
    assert run.record == {} and run.staleness().empty and "lr: 0.2" in run.config_text
    curve = trireme.compare([run, trireme.read_run(files / "first")], y="loss", points=5)
    assert curve["count"].iloc[0] == 2


def test_checkpoint_of_the_first_version():
    checkpoint = trireme.read_checkpoint(first / "run")
    summary = json.load(open(first / "run/summary.json"))
    assert checkpoint.path.name == "step-00000012.h5" and set(checkpoint.states) == {"momentum"}
    assert checkpoint.attributes["weights_sha256"] == summary["weights_sha256"]
    assert checkpoint.attributes["updates"] == summary["steps"] == 12
    assert trireme.read_checkpoint(first / "run/checkpoints/step-00000004.h5").attributes["updates"] == 4
    # the loss of the run from weights and data
    w, data = checkpoint.weights, trireme.read_dataset(first / "vector.h5")
    assert set(w) == {"layer0.weight", "layer0.bias", "layer2.weight", "layer2.bias"}
    hidden = np.maximum(data.values("test") @ w["layer0.weight"].T + w["layer0.bias"], 0)
    scores = (hidden @ w["layer2.weight"].T + w["layer2.bias"]).astype(np.float64)
    y = data.splits["test"]["y"]
    loss = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]
    assert loss.mean() == pytest.approx(summary["test_loss"], rel=1e-6)


def test_datasets_of_the_first_version():
    vector = trireme.read_dataset(first / "vector.h5")
    assert (vector.kind, vector.target, vector.classes, vector.shape) == ("vector", "class", 3, (2,))
    assert vector.class_names == ["low", "middle", "high"]
    assert vector.splits["train"]["x"].shape == (36, 2) and vector.splits["test"]["y"].shape == (12,)
    csr = trireme.read_dataset(first / "csr.h5").splits["train"]
    assert csr["starts"].tolist() == list(range(0, 19, 3)) and csr["columns"].tolist() == [0, 1, 3] * 6
    assert csr["values"].tolist() == [v for i in range(1, 7) for v in (i, 0.5, -i)]
    tokens = trireme.read_dataset(first / "tokens.h5")
    text = "".join(tokens.class_names[t] for name in ("train", "test") for t in tokens.splits[name]["x"])
    assert (tokens.kind, tokens.classes, text) == ("tokens", 4, "abcabcabdabcabcabdab" * 5)
    image = trireme.read_dataset(first / "image.h5")
    assert (image.kind, image.shape, image.splits["train"]["x"].dtype) == ("image", (1, 28, 28), np.uint8)
    assert image.values("train").max() == np.float32(image.scale) * image.splits["train"]["x"].max()
