# SPDX-License-Identifier: Apache-2.0
"""Many commands that watch a broker: each asks for `ps` once a second, on a connection of its own, as `partage top`
does. Says "ready" once each was answered, and how long their answers took when its input ends."""
import json
import selectors
import socket
import statistics
import struct
import sys
import time

MAGIC, LAST = b"PTGJ", 1
PERIOD = 1.0
path, count = sys.argv[1], int(sys.argv[2])
document = json.dumps({"verb": "ps", "all": False}).encode()
request = MAGIC + struct.pack("<HH", LAST, 0) + document

selector = selectors.DefaultSelector()
selector.register(sys.stdin, selectors.EVENT_READ)
# Spread over the period, as people's are.
due = [(time.monotonic() + PERIOD * number / count, number) for number in range(count)]
answered, took = set(), []


def ask(number):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    connection.send(request)
    selector.register(connection, selectors.EVENT_READ, (number, time.monotonic()))


while True:
    while due and due[0][0] <= time.monotonic():
        ask(due.pop(0)[1])
    patience = max(0, due[0][0] - time.monotonic()) if due else None
    for key, _ in selector.select(patience):
        if key.fileobj is sys.stdin:
            print(f"{len(took)} {statistics.median(took) * 1e3:.1f} {max(took) * 1e3:.1f}", flush=True)
            sys.exit(0)
        number, since = key.data
        packet = key.fileobj.recv(1 << 17)
        if not packet:
            sys.exit(f"watcher {number} was not answered")
        if packet[4] & LAST:
            selector.unregister(key.fileobj)
            key.fileobj.close()
            took.append(time.monotonic() - since)
            due.append((max(since + PERIOD, time.monotonic()), number))
            due.sort()
            answered.add(number)
            if len(answered) == count:
                answered.add(None)
                print("ready", flush=True)
