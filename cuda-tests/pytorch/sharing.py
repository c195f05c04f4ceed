# SPDX-License-Identifier: Apache-2.0
"""A CUDA tensor goes to a spawned process, which writes into it.

usage: sharing.py
"""
import torch
import torch.multiprocessing as processes


def child(queue, done):
    tensor = queue.get()
    assert tensor.is_cuda and tensor.sum().item() == 28.0
    tensor.mul_(2)
    torch.cuda.synchronize()
    done.put(tensor.sum().item())
    del tensor
    assert queue.get() == "end"


if __name__ == "__main__":
    spawn = processes.get_context("spawn")
    queue, done = spawn.Queue(), spawn.Queue()
    process = spawn.Process(target=child, args=(queue, done))
    process.start()
    tensor = torch.arange(8, dtype=torch.float32, device="cuda")
    queue.put(tensor)
    assert done.get(timeout=120) == 56.0
    assert tensor.cpu().tolist() == [2.0 * i for i in range(8)]
    queue.put("end")
    process.join(60)
    assert process.exitcode == 0, process.exitcode
    print("ok: written by another process")
