#!/usr/bin/env python3
"""Prints the frames of tests/unit/test_event_file.c, as TensorBoard's own writer makes them."""
import io

from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def show(event):
    stream = io.BytesIO()
    RecordWriter(stream).write(event.SerializeToString())
    print(stream.getvalue().hex())


show(event_pb2.Event(wall_time=1.5, file_version="brain.Event:2"))
event = event_pb2.Event(wall_time=1600000000.25, step=300)
value = event.summary.value.add()
value.tag, value.simple_value = "train/loss", 0.375
show(event)
event = event_pb2.Event(wall_time=2.0, step=7)
value = event.summary.value.add()
value.tag = "staleness/updates"
value.histo.min, value.histo.max, value.histo.num, value.histo.sum, value.histo.sum_squares = 1, 3, 6, 11, 23
value.histo.bucket_limit.extend([0.5, 1.5, 2.5, 3.5])
value.histo.bucket.extend([0, 2, 3, 1])
show(event)
event = event_pb2.Event(wall_time=2.0, step=9)
value = event.summary.value.add()
value.tag = "weights/bias"
value.histo.min, value.histo.max, value.histo.num = 0.25, 0.25, 3
value.histo.sum, value.histo.sum_squares = 0.75, 0.1875
value.histo.bucket_limit.extend([0.25])
value.histo.bucket.extend([3])
show(event)
