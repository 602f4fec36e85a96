"""Data sets and checkpoints: HDF5 files (datasets/README.md describes them)."""
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from .errors import ReadError

ENCRYPTED = b"TRMCIPH1"


@dataclass
class Dataset:
    """A data set; splits maps "train", "validation" and "test" to dicts of arrays.

    Rows: x as it is stored (N, shape) and y, of csr starts, columns and values; of tokens x (T). Of bytes the value is
    scale * x + shift.
    """

    path: Path
    kind: str
    target: str
    classes: int
    shape: tuple
    scale: float
    shift: float
    digest: str
    class_names: list
    splits: dict

    def values(self, split="train"):
        """x of a split as float32, as training sees it."""
        x = self.splits[split]["x"]
        return x if x.dtype == np.float32 else x.astype(np.float32) * np.float32(self.scale) + np.float32(self.shift)


@dataclass
class Checkpoint:
    """A checkpoint; weights: parameter name to array, states: state name to such a dict (momentum, ema, ...)."""

    path: Path
    model: str
    weights: dict
    states: dict
    attributes: dict = field(default_factory=dict)


def _open(path, wanted):
    try:
        with open(path, "rb") as file:
            head = file.read(len(ENCRYPTED))
    except OSError as e:
        raise ReadError(f"{path}: {e.strerror}") from e
    if head == ENCRYPTED:
        raise ReadError(f"{path}: encrypted; trireme key decrypt {path} --out=PLAIN.h5 --security.key=... makes a plain "
                        "file")
    try:
        file = h5py.File(path, "r")
    except OSError as e:
        raise ReadError(f"{path}: not an HDF5 file, or damaged: {e}") from e
    found = _attribute(file, "format", "")
    if found != wanted:
        file.close()
        raise ReadError(f"{path}: not a {wanted.split('-')[1]} (its format is \"{found}\", not \"{wanted}\")")
    if int(_attribute(file, "version", 0)) != 1:
        version = _attribute(file, "version", 0)
        file.close()
        raise ReadError(f"{path}: version {version}; this reader knows version 1")
    return file


def _text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _attribute(file, name, fallback=None):
    value = _text(file.attrs.get(name, fallback))
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def _names(file, name):
    return [_text(text) for text in file[name][()]] if name in file else []


def _arrays(path, group):
    arrays = {}

    def add(name, item):
        if isinstance(item, h5py.Dataset) and not name.endswith("_sums"):
            try:
                arrays[name] = item[()]
            except OSError as e:
                raise ReadError(f"{path}: {item.name}: damaged: {e}") from e

    group.visititems(add)
    return arrays


def read_dataset(path, splits=("train", "validation", "test")):
    """Reads a data set, those of the splits that it has. Block checksums are not compared: trireme data info --check
    does."""
    path = Path(path)
    with _open(path, "trireme-dataset") as file:
        shape = file.attrs.get("shape", ())
        return Dataset(path, kind=_attribute(file, "kind", ""), target=_attribute(file, "target", ""),
                       classes=int(_attribute(file, "classes", _attribute(file, "vocabulary", 0))),
                       shape=tuple(int(n) for n in np.atleast_1d(shape)), scale=float(_attribute(file, "scale", 1)),
                       shift=float(_attribute(file, "shift", 0)), digest=_attribute(file, "digest", ""),
                       class_names=_names(file, "class_names"),
                       splits={name: _arrays(path, file[name]) for name in splits if name in file})


def _last(folder):
    """last.h5, or of runs of the first version, which had no such link, the newest step-N.h5."""
    steps = sorted(folder.glob("step-*.h5"), key=lambda path: int(path.stem.removeprefix("step-")))
    last = folder / "last.h5"
    return last if last.exists() or not steps else steps[-1]


def read_checkpoint(path, states=True):
    """Reads a checkpoint, or of a run directory its last one; states=False: the weights only."""
    path = Path(path)
    if path.is_dir():
        path = _last(path / "checkpoints")
    with _open(path, "trireme-checkpoint") as file:
        state = {name: _arrays(path, group) for name, group in file["states"].items()} \
            if states and "states" in file else {}
        attributes = {name: _attribute(file, name) for name in file.attrs}
        return Checkpoint(path, model=attributes.get("model", ""), weights=_arrays(path, file["weights"]), states=state,
                          attributes=attributes)
