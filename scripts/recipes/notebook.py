# SPDX-License-Identifier: Apache-2.0
"""A notebook without a browser: starts a kernel, runs a cell, restarts it, runs the cell again, interrupts another.

usage: notebook.py KERNEL CELL      prints one JSON line: process ids, outputs, versions
"""
import json
import sys

import ipykernel
import jupyter_client

PATIENCE = 60
kernel, cell = sys.argv[1:]
manager = jupyter_client.KernelManager(kernel_name=kernel)
manager.start_kernel()
pids, outputs = [], []
try:
    client = manager.client()
    client.start_channels()

    def run(code, on_output):
        return client.execute_interactive(code, timeout=PATIENCE, output_hook=on_output)["content"]

    def kept(message):
        outputs[-1] += message["content"].get("text", "")

    for is_restart in (False, True):
        if is_restart:
            manager.restart_kernel()
        client.wait_for_ready(timeout=PATIENCE)
        pids.append(manager.provisioner.pid)
        outputs.append("")
        reply = run(cell, kept)
        if reply["status"] != "ok":
            sys.exit(f"the cell: {reply}")

    def interrupt(message):
        # Its first output shows that the cell runs.
        if "text" in message["content"]:
            manager.interrupt_kernel()

    reply = run("import time\nprint('here', flush=True)\ntime.sleep(600)", interrupt)
finally:
    manager.shutdown_kernel(now=True)
print(json.dumps({
    "pids": pids, "first": outputs[0], "interrupted": reply.get("ename"),
    "ipykernel": ipykernel.__version__, "jupyter_client": jupyter_client.__version__}))
