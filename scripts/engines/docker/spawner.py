# SPDX-License-Identifier: Apache-2.0
"""Starts a container as JupyterHub's DockerSpawner does: with docker's Python client and the settings of a hub's file.

usage: spawner.py CONFIGURATION SOCKET IMAGE WORD...      prints the container's id, or what the daemon said and 1
"""
import sys
import types

import docker

configuration, socket, image, *words = sys.argv[1:]
c = types.SimpleNamespace(JupyterHub=types.SimpleNamespace(), DockerSpawner=types.SimpleNamespace())
with open(configuration) as file:
    exec(compile(file.read(), configuration, "exec"), {"c": c})
assert c.JupyterHub.spawner_class == "docker", c.JupyterHub
client = docker.APIClient(base_url=f"unix://{socket}")
# DockerSpawner.create_object and start_object.
host_config = client.create_host_config(**c.DockerSpawner.extra_host_config)
container = client.create_container(image, words, host_config=host_config)
try:
    client.start(container["Id"])
except docker.errors.APIError as error:
    sys.exit(error.explanation)
print(container["Id"])
