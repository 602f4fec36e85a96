#!/usr/bin/env python3
"""Rate of the link between two hosts: 16 MB to the other host and back, over TCP.

usage: link.py serve                 on one host, for one measurement
       link.py ADDRESS [ROUNDS]      on the other: prints the median of bytes per second in one direction
"""
import socket
import statistics
import sys
import time

PORT, BYTES = 29400, 16 << 20


def receive(connection, into):
    done = 0
    while done < len(into):
        count = connection.recv_into(into[done:])
        if count == 0:
            return False
        done += count
    return True


def serve():
    with socket.create_server(("", PORT)) as server:
        connection, _ = server.accept()
        data = memoryview(bytearray(BYTES))
        with connection:
            while receive(connection, data):
                connection.sendall(data)


def measure(address, rounds):
    for attempt in range(50):
        try:
            connection = socket.create_connection((address, PORT))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    data = memoryview(bytearray(BYTES))
    rates = []
    with connection:
        for _ in range(rounds):
            begin = time.perf_counter()
            connection.sendall(data)
            receive(connection, data)
            rates.append(2 * BYTES / (time.perf_counter() - begin))
    print(f"{statistics.median(rates):.0f}")


if sys.argv[1] == "serve":
    serve()
else:
    measure(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
