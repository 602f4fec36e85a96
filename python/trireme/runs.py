"""Run directories and sweeps."""
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from .errors import ReadError


@dataclass
class Run:
    """A run directory.

    train: a row per logged step (step, epoch, samples, wall_s, loss, lr, ...);
    evaluations: a row per evaluation (validation_loss, test_accuracy, staleness_mean, ...);
    summary, record: summary.json and record.json, empty where the run has none (it has not ended).
    """

    path: Path
    train: pd.DataFrame
    evaluations: pd.DataFrame
    summary: dict = field(default_factory=dict)
    record: dict = field(default_factory=dict)
    config_text: str = ""

    @property
    def name(self):
        return self.path.resolve().name

    def summary_frame(self):
        """summary.json as a DataFrame of one row, named as the run; inner objects as columns "outer.inner"."""
        return _flat_frame(self.summary, self.name)

    def record_frame(self):
        """The same of record.json."""
        return _flat_frame(self.record, self.name)

    def config(self):
        """config.yaml as a dict. Needs PyYAML."""
        try:
            import yaml
        except ImportError as e:
            raise ReadError("config.yaml: reading it needs PyYAML (pip install pyyaml)") from e
        return yaml.safe_load(self.config_text) or {}

    def staleness(self):
        """Updates of asynchronous methods by staleness: a DataFrame, rows are ranks, columns 0, 1, ... staleness.
        Empty for methods without staleness."""
        path = self.path / "staleness.json"
        ranks = _read_json(path).get("ranks", []) if path.exists() else []
        frame = pd.DataFrame([pd.Series(rank["histogram"], dtype="int64") for rank in ranks],
                             index=pd.Index([rank["rank"] for rank in ranks], name="rank", dtype="int64"))
        return frame.fillna(0).astype("int64")


@dataclass
class Sweep:
    """A sweep's directory: results.csv (a row per combination) and runs.csv (a row per run)."""

    path: Path
    results: pd.DataFrame
    runs: pd.DataFrame

    def read_run(self, name):
        """The run of that name (column "run" of runs.csv)."""
        return read_run(self.path / "runs" / name)


def _read_text(path):
    try:
        return path.read_text(encoding="utf-8")
    except OSError as e:
        raise ReadError(f"{path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ReadError(f"{path}: damaged: not UTF-8") from e


def _read_json(path):
    try:
        value = json.loads(_read_text(path))
    except ValueError as e:
        raise ReadError(f"{path}: damaged: {e}") from e
    if not isinstance(value, dict):
        raise ReadError(f"{path}: damaged: not a JSON object")
    return value


def _flat_frame(values, name):
    frame = pd.json_normalize(values) if values else pd.DataFrame(index=[0])
    frame.index = [name]
    return frame


def _read_lines(path):
    lines = []
    text = _read_text(path).split("\n")
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as e:
            if number == len(text):  # a killed run leaves an incomplete last line
                break
            raise ReadError(f"{path}:{number}: damaged line: {e}") from e
        if not isinstance(value, dict) or "step" not in value:
            raise ReadError(f"{path}:{number}: damaged line: not an object with a step")
        lines.append(value)
    return lines


def _frame(lines):
    """Lines of a curve in order: those that a resumed run logged again replace the earlier ones."""
    kept = []
    for line in lines:
        if kept and line["step"] < kept[-1]["step"]:
            kept = [k for k in kept if k["step"] < line["step"]]
        kept.append(line)
    frame = pd.DataFrame(kept)
    for column in frame.columns:  # null is a value that was not finite
        if frame[column].dtype == object and not frame[column].map(lambda v: isinstance(v, (list, dict, str))).any():
            frame[column] = frame[column].astype("float64")
    return frame


def read_run(path):
    """Reads a run directory."""
    path = Path(path)
    lines = _read_lines(path / "metrics.jsonl")
    train = _frame([line for line in lines if "loss" in line])
    evaluations = _frame([line for line in lines if "loss" not in line])
    parts = {}
    for name in ("summary", "record"):
        file = path / f"{name}.json"
        parts[name] = _read_json(file) if file.exists() else {}
    config = path / "config.yaml"
    return Run(path, train, evaluations, config_text=_read_text(config) if config.exists() else "", **parts)


def _read_csv(path):
    try:
        return pd.read_csv(path)
    except OSError as e:
        raise ReadError(f"{path}: {e.strerror}") from e
    except (ValueError, pd.errors.ParserError) as e:
        raise ReadError(f"{path}: damaged: {e}") from e


def read_sweep(path):
    """Reads the tables of a sweep."""
    path = Path(path)
    return Sweep(path, _read_csv(path / "results.csv"), _read_csv(path / "runs.csv"))


def compare(runs, y="loss", x="step", points=200):
    """The mean and the standard deviation of a training curve over runs (of several seeds, say), on a common axis.

    Returns a DataFrame with the index x and the columns mean, std, min, max and count; each run's curve is
    interpolated, and counts as far as it goes. Values that are not finite are left out.
    """
    curves = []
    for run in runs:
        frame = run.train if y in run.train else run.evaluations
        if y not in frame or x not in frame:
            raise ReadError(f"{run.path}: no values {y} over {x}")
        curve = frame[[x, y]].astype("float64").dropna()
        if len(curve):
            curves.append(curve)
    if not curves:
        raise ReadError(f"no run has values {y}")
    axis = np.linspace(min(c[x].min() for c in curves), max(c[x].max() for c in curves), points)
    table = np.array([np.interp(axis, c[x], c[y], left=np.nan, right=np.nan) for c in curves])
    frame = pd.DataFrame(table.T, index=pd.Index(axis, name=x))
    return pd.DataFrame({"mean": frame.mean(axis=1), "std": frame.std(axis=1), "min": frame.min(axis=1),
                         "max": frame.max(axis=1), "count": frame.count(axis=1)})
