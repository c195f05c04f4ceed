# SPDX-License-Identifier: Apache-2.0
"""A loop as training frameworks have it: epochs, a validation, a checkpoint at each best, a logger, mixed precision,
gradient clipping, a scheduler, and a SIGTERM handler that saves and ends well; begins again from what was saved.

usage: loop.py FOLDER EPOCHS   (prints where it began, and the last loss to the last bit)
"""
import csv
import os
import pathlib
import signal
import sys
import time

import torch
from torch import nn

folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
folder.mkdir(exist_ok=True)
asked_to_end = False


def on_sigterm(_signal, _frame):
    global asked_to_end
    asked_to_end = True


signal.signal(signal.SIGTERM, on_sigterm)
torch.manual_seed(11)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
given, wanted = torch.randn(64, 12), torch.randint(0, 3, (64,))
model, given, wanted = model.cuda(), given.cuda(), wanted.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
scaler = torch.amp.GradScaler("cuda")
began = 0
if (folder / "last.pt").exists():
    saved = torch.load(folder / "last.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    for part, name in ((optimizer, "optimizer"), (scheduler, "scheduler"), (scaler, "scaler")):
        part.load_state_dict(saved[name])
    began = saved["epoch"]


def save(epoch):
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    torch.save({name: part.state_dict() for name, part in parts.items()} | {"epoch": epoch}, folder / "new.pt")
    os.replace(folder / "new.pt", folder / "last.pt")


print("began", began, flush=True)
with open(folder / "log.csv", "a", newline="") as file:
    log = csv.writer(file)
    for epoch in range(began, epochs):
        for part in range(0, 64, 16):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(given[part:part + 16]), wanted[part:part + 16])
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()
        with torch.no_grad():
            last = nn.functional.cross_entropy(model(given), wanted).item()
        log.writerow([epoch, last.hex()])
        file.flush()
        save(epoch + 1)
        if asked_to_end:
            print("ended early", epoch + 1, flush=True)
            sys.exit(0)
        time.sleep(float(os.environ.get("LOOP_PAUSE", "0")))
print("last", last.hex(), flush=True)
