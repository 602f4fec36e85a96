#!/usr/bin/env python3
"""Records a table and what pandas makes of it, for tests/unit/test_import_table.c.

    python3 make_table.py [FOLDER]     writes table.csv and table.txt (default: beside this script)

table.txt has the rows, each the features after standardization (statistics of the values that are there), means for
missing numbers, the most frequent category for missing ones, and one-hot categories in ascending order.
"""
import csv
import os
import sys

import numpy as np
import pandas


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    random = np.random.default_rng(5)
    path = os.path.join(folder, "table.csv")
    cities = ["Oslo", "São Paulo", 'the "big" one', "a; b", "two\nlines"]
    with open(path, "w", newline="") as file:
        out = csv.writer(file, delimiter=";", lineterminator="\n")
        out.writerow(["identifier", "age", "city", "income; year", "code", "class"])
        for i in range(40):
            age = "" if i % 9 == 4 else f"{random.normal(40, 12):.2f}"
            city = "NA" if i % 13 == 6 else cities[int(random.integers(5))]
            income = "?" if i % 11 == 7 else repr(float(random.lognormal(10, 1)))
            out.writerow([f"id{i}", age, city, income, int(random.integers(3)) * 7, "yes" if i % 3 else "no"])
    table = pandas.read_csv(path, sep=";", na_values=["?"])
    parts = []
    for name in ("age", "city", "income; year", "code"):
        column = table[name]
        if name in ("city", "code"):
            column = column.fillna(column.mode()[0]).astype(str)
            parts.append(pandas.get_dummies(column).to_numpy(float))
        else:
            parts.append(((column - column.mean()) / column.std(ddof=0)).fillna(0).to_numpy()[:, None])
    with open(os.path.join(folder, "table.txt"), "w") as file:
        for row in np.concatenate(parts, 1):
            print(*(f"{value:.9g}" for value in row), file=file)


main()
