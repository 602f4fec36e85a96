#!/usr/bin/env python3
"""Records files of NumPy for tests/unit/test_import_numpy.c.

    python3 make_numpy.py [FOLDER]     writes numpy_files.txt (default: beside this script)

A line is a name and the file in hexadecimal. The arrays are x[i, h, w, c] = (i * 60 + h * 15 + w * 3 + c) % 251 of 12
images of 4 x 5 with 3 channels, and labels y[i] = 10 * (i % 3) - 10, or the names of them.
"""
import io
import os
import sys

import numpy as np


def saved(function, *arrays, **named):
    file = io.BytesIO()
    function(file, *arrays, **named)
    return file.getvalue()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    x = (np.arange(12 * 60).reshape(12, 4, 5, 3) % 251).astype(np.uint8)
    y = 10 * (np.arange(12) % 3) - 10
    names = np.array(["7.0", "Zürich", "oslo"])[np.arange(12) % 3]
    names[3] = "7"  # the same number
    version2 = io.BytesIO()
    np.lib.format.write_array(version2, x, version=(2, 0))
    files = {
        "x.npy": saved(np.save, x), "y.npy": saved(np.save, y), "y8.npy": saved(np.save, y.astype("i1")),
        "first.npy": saved(np.save, x.transpose(0, 3, 1, 2).copy()), "x2.npy": version2.getvalue(),
        "gray.npy": saved(np.save, x[..., 1].copy()), "big.npy": saved(np.save, x[:, :, 0, 0].astype(">f4")),
        "double.npy": saved(np.save, x[:, :, 0, 0] / 2), "value.npy": saved(np.save, np.stack([y, y / 4], 1)),
        "fortran.npy": saved(np.save, np.asfortranarray(x)), "text.npy": saved(np.save, y.astype(str)),
        "names.npy": saved(np.save, names), "names_big.npy": saved(np.save, names.astype(names.dtype.newbyteorder(">"))),
        "names_bytes.npy": saved(np.save, np.char.encode(names, "utf-8")), "names.npz": saved(np.savez, x=x, y=names),
        "latin.npy": saved(np.save, np.char.encode(names, "latin-1")), "blank.npy": saved(np.save, np.array([""] * 12)),
        "objects.npy": saved(np.save, np.array([{}] * 12, dtype=object)), "none.npy": saved(np.save, x[:0]),
        "nan.npy": saved(np.save, np.where(x[:, :, 0, 0] == 15, np.nan, x[:, :, 0, 0])),
        "complex.npy": saved(np.save, y + 1j), "scalar.npy": saved(np.save, np.float32(1)),
        "stored.npz": saved(np.savez, x=x, y=y), "packed.npz": saved(np.savez_compressed, a=x, b=y.astype("i2")),
        "splits.npz": saved(np.savez_compressed, x_train=x, y_train=y, x_test=x[3:5], y_test=y[3:5]),
    }
    with open(os.path.join(folder, "numpy_files.txt"), "w") as out:
        for name, file in files.items():
            print(name, file.hex(), file=out)


main()
