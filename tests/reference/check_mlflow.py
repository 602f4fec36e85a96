#!/usr/bin/env python3
"""check_mlflow.py STORE RUN: compares a run in MLflow's file store, as its client reads it, with the run directory."""
import json
import os
import sys

from mlflow.tracking import MlflowClient

store, folder = sys.argv[1:]
client = MlflowClient(tracking_uri="file://" + os.path.abspath(store))
experiment = client.get_experiment_by_name("trireme")
(run,) = client.search_runs([experiment.experiment_id])
summary = json.load(open(os.path.join(folder, "summary.json")))
lines = [json.loads(line) for line in open(os.path.join(folder, "metrics.jsonl"))]
assert run.info.status == "FINISHED" and run.info.run_name == os.path.basename(folder), run.info
assert run.info.end_time >= run.info.start_time, run.info
assert run.data.params["optim.lr"] == "0.1" and run.data.params["strategy.name"] == "sync", run.data.params
assert run.data.metrics["test_accuracy"] == summary["test_accuracy"], run.data.metrics
assert run.data.metrics["samples_per_s"] == summary["samples_per_s"], run.data.metrics
for key in ("loss", "validation_loss"):
    history = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]
    assert history == [(line["step"], line[key]) for line in lines if key in line], key
