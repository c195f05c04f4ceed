# SPDX-License-Identifier: Apache-2.0
"""A notebook's client: sends each line of standard input to the kernel of a connection file, and prints its answer."""
import sys
import time
from queue import Empty

from jupyter_client import BlockingKernelClient

PATIENCE = 20


def main():
    client = BlockingKernelClient(connection_file=sys.argv[1])
    client.load_connection_file()
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE)
    for line in sys.stdin:
        print(run(client, line.strip()), flush=True)


def run(client, code):
    statements, _, last = code.rpartition("; ")
    until = time.monotonic() + PATIENCE
    # The kernel may be gone: it takes nothing then.
    while not is_there(client):
        if time.monotonic() > until:
            sys.exit("the kernel does not answer")
    last = last if is_expression(last) else "None"
    reply = client.execute(
        code if last == "None" else statements or "None",
        silent=True,
        user_expressions={"value": last},
        reply=True,
        timeout=PATIENCE,
    )
    content = reply["content"]
    if content["status"] != "ok":
        return f"{content['ename']}: {content['evalue']}"
    return content["user_expressions"]["value"]["data"]["text/plain"]


def is_expression(text):
    try:
        compile(text, "cell", "eval")
    except SyntaxError:
        return False
    return True


def is_there(client):
    try:
        client.kernel_info(reply=True, timeout=1)
    except (Empty, TimeoutError):
        return False
    return True


if __name__ == "__main__":
    main()
