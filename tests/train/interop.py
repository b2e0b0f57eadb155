#!/usr/bin/env python3
"""Reads a run's folder with other tools: safetensors and PyTorch's distributed checkpoints.

usage: interop.py TRAIN_GPT TROUPE TEXT   (`./dev interop` gives these)
"""
import glob
import os
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files


def equal(have, want, what):
    assert have.keys() == want.keys(), f"{what}: names differ: {have.keys() ^ want.keys()}"
    for name in want:
        assert torch.equal(have[name], want[name]), f"{what}: {name} differs"


def tensors_in(folder):
    tensors = {}
    for path in sorted(glob.glob(f"{folder}/*.safetensors")):
        for name, tensor in safetensors.torch.load_file(path).items():
            assert name not in tensors, f"{name} is in two files"
            tensors[name] = tensor
    return tensors


def check(checkpoint, work, troupe):
    tensors = tensors_in(checkpoint)
    assert tensors, f"{checkpoint} has no tensors"
    loaded = {name: torch.full_like(tensor, float("nan")) for name, tensor in tensors.items()}
    dcp.load(loaded, storage_reader=HuggingFaceStorageReader(path=checkpoint))
    equal(loaded, tensors, "HuggingFaceStorageReader")

    theirs = f"{work}/theirs"
    os.mkdir(theirs)
    consolidate_safetensors_files(checkpoint, theirs, {name: 1 for name in tensors})
    equal(tensors_in(theirs), tensors, "consolidate_safetensors_files")

    ours = f"{work}/ours.safetensors"
    subprocess.run([troupe, "checkpoint", "consolidate", checkpoint, "--to", ours, "--all"], check=True)
    equal(safetensors.torch.load_file(ours), tensors, "troupe checkpoint consolidate")
    return len(tensors)


def main(train_gpt, troupe, text):
    for mesh in (["dp=4", "--zero", "3"], ["dp=2,tp=2", "--zero", "1"], ["pp=2", "--micro", "2"], ["dp=1"]):
        with tempfile.TemporaryDirectory() as work:
            run = f"{work}/run"
            os.mkdir(run)
            subprocess.run([train_gpt, "--text", text, "--steps", "4", "--every", "4", "--layers", "2", "--heads", "4",
                            "--channels", "64", "--context", "32", "--batch", "8", "--folder", run, "--mesh", *mesh],
                           check=True, stdout=subprocess.DEVNULL)
            count = check(f"{run}/step-00000004", work, troupe)
            print(f"{' '.join(mesh)}: {count} tensors, equal in safetensors, PyTorch and troupe")


if __name__ == "__main__":
    main(*sys.argv[1:])
