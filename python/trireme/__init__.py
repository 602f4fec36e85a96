"""Reads what Trireme writes: runs and sweeps as pandas DataFrames, data sets and checkpoints as numpy arrays.

It does not train, and writes nothing. Errors are ReadError, with the file and the reason.
"""
from .errors import ReadError
from .files import Checkpoint, Dataset, read_checkpoint, read_dataset
from .runs import Run, Sweep, compare, read_run, read_sweep

__all__ = ["Checkpoint", "Dataset", "ReadError", "Run", "Sweep", "compare", "read_checkpoint", "read_dataset",
           "read_run", "read_sweep"]
