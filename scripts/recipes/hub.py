# SPDX-License-Identifier: Apache-2.0
"""A user of a JupyterHub without a browser: logs in, has a server spawned, runs a cell there, and stops the server.

usage: hub.py HUB ROUTES TOKEN CELL      HUB: its address; ROUTES: the file where its proxy notes where servers are
Prints one JSON line: what the cell printed, before and after the kernel was started again.
"""
import asyncio
import http.cookiejar
import json
import pathlib
import sys
import time
import urllib.parse
import urllib.request

import tornado.httpclient
import tornado.websocket

PATIENCE = 50
USER = "alice"
hub, routes, token, cell = sys.argv[1:]
headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
jar = http.cookiejar.CookieJar()
browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))


def log_in():
    """By the form, as a person does; the page after it starts the server."""
    browser.open(f"{hub}/hub/login", timeout=PATIENCE)
    secret = next(cookie.value for cookie in jar if cookie.name == "_xsrf")
    form = {"username": USER, "password": "any", "_xsrf": urllib.parse.unquote(secret)}
    browser.open(f"{hub}/hub/login?next=%2Fhub%2Fspawn", urllib.parse.urlencode(form).encode(), timeout=PATIENCE)


def asked(address, method="GET", body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def server():
    """The address of the user's server, which the proxy is told once it is ready."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        known = json.loads(pathlib.Path(routes).read_text())
        if f"/user/{USER}/" in known:
            return known[f"/user/{USER}/"] + f"/user/{USER}"
        time.sleep(0.1)
    raise SystemExit(f"the server of {USER} is not ready within {PATIENCE} s")


async def run(address, kernel):
    """What the cell prints."""
    request = tornado.httpclient.HTTPRequest(
        f"ws{address.removeprefix('http')}/api/kernels/{kernel}/channels", headers=headers)
    channel = await tornado.websocket.websocket_connect(request)
    header = {"msg_id": "cell", "msg_type": "execute_request", "username": USER, "session": "hub", "version": "5.3"}
    content = {"code": cell, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    await channel.write_message(json.dumps(message))
    printed = ""
    while True:
        answer = json.loads(await asyncio.wait_for(channel.read_message(), PATIENCE))
        if answer["parent_header"].get("msg_id") != "cell":
            continue
        printed += answer["content"].get("text", "") if answer["msg_type"] == "stream" else ""
        if answer["msg_type"] == "execute_reply":
            if answer["content"]["status"] != "ok":
                raise SystemExit(f"the cell: {answer['content']}")
            channel.close()
            return printed


log_in()
address = server()
kernel = asked(f"{address}/api/kernels", "POST", {})["id"]
first = asyncio.run(run(address, kernel))
asked(f"{address}/api/kernels/{kernel}/restart", "POST", {})
again = asyncio.run(run(address, kernel))
print(json.dumps({"first": first, "again": again}), flush=True)
# Whoever reads it looks at the job before the server goes.
sys.stdin.readline()
asked(f"{hub}/hub/api/users/{USER}/server", "DELETE")
