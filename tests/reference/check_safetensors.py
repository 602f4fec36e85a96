#!/usr/bin/env python3
"""Transfers weights from Trireme to PyTorch and back, for models of torchvision and Hugging Face's transformers.

    TRIREME=build/trireme python3 tests/reference/check_safetensors.py

For each model: a run of two steps is exported and loaded by PyTorch, and scores must be equal; then weights that
PyTorch wrote (in bfloat16, and GPT-2 by save_pretrained) are imported, likewise; and onnxruntime runs the exported
graph. Needs torch, torchvision, transformers, safetensors, h5py, onnxruntime; without one of them it ends with a
message and status 77.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
    import onnxruntime
    import torch
    import torchvision
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"SKIPPED: {missing}")
    sys.exit(77)

TRIREME = os.path.abspath(os.environ.get("TRIREME", "build/trireme"))
TOLERANCE = 1e-4
torch.manual_seed(1)
work = tempfile.TemporaryDirectory()
os.chdir(work.name)


def trireme(*arguments):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run([TRIREME, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"trireme {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def train(model, data, *more):
    trireme("train", f"--model={model}", f"--data.file={data}", "--run.dir=run", "--run.overwrite=yes",
            "--log.quiet=yes", "--train.batch=4", *more)
    return "run/checkpoints/last.h5"


def close(what, got, want):
    difference = numpy.abs(got - want).max() / max(1, numpy.abs(want).max())
    print(f"{what}: largest difference {difference:.2g}")
    if not difference <= TOLERANCE:
        sys.exit(f"{what}: differs")


def predicted(*arguments):
    trireme("predict", *arguments, "--data.file=images.h5", "--out=scores.h5")
    with h5py.File("scores.h5") as file:
        return file["scores"][:]


class Cifar(torchvision.models.ResNet):
    """ResNet-20 for small images, with the names of torchvision's ResNet."""

    def __init__(self):
        super().__init__(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1])
        self.inplanes = 16
        self.conv1 = torch.nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.maxpool = torch.nn.Identity()
        block = torchvision.models.resnet.BasicBlock
        self.layer1 = self._make_layer(block, 16, 3)
        self.layer2 = self._make_layer(block, 32, 3, stride=2)
        self.layer3 = self._make_layer(block, 64, 3, stride=2)
        self.layer4 = torch.nn.Identity()
        self.fc = torch.nn.Linear(64, 10)


def vgg11():
    """torchvision's, for images of one pixel after the convolutions."""
    model = torchvision.models.vgg11(num_classes=10)
    model.avgpool = torch.nn.Identity()
    model.classifier[0] = torch.nn.Linear(512, 4096)
    return model


def check_images():
    images = numpy.random.default_rng(1).standard_normal((12, 3, 32, 32)).astype("f4")
    with h5py.File("images.h5", "w", libver="v110") as file:
        file.attrs.update(format="trireme-dataset", version=1, kind="image", target="class", classes=10,
                          shape=numpy.array([3, 32, 32]))
        for split in "train", "test":
            file[split + "/x"], file[split + "/y"] = images, numpy.arange(12, dtype="i4") % 10
    x = torch.from_numpy(images)
    for name, make in ("resnet18", lambda: torchvision.models.resnet18(num_classes=10)), ("resnet20", Cifar), \
            ("resnet50", lambda: torchvision.models.resnet50(num_classes=10)), ("vgg11", vgg11):
        checkpoint = train(name, "images.h5", "--train.steps=2", "--optim.lr=0.01")
        trireme("export", checkpoint, "--format=safetensors", "--out=ours.safetensors")
        model = make().eval()
        model.load_state_dict(load_file("ours.safetensors"))
        with torch.no_grad():
            want = model(x).numpy()
        close(f"{name} there", predicted(checkpoint), want)

        trireme("export", checkpoint, "--format=onnx", "--out=model.onnx")
        session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
        close(f"{name} in onnxruntime", session.run(["scores"], {"samples": images})[0], want)

        model = make().eval()
        state = {key: value.bfloat16() if value.is_floating_point() else value
                 for key, value in model.state_dict().items()}
        save_file(state, "theirs.safetensors")
        model.load_state_dict(state)
        with torch.no_grad():
            want = model.float()(x).numpy()
        close(f"{name} and back", predicted("theirs.safetensors", f"--model={name}"), want)
        checkpoint = train(name, "images.h5", "--model.init=theirs.safetensors", "--train.steps=1", "--optim.lr=0")
        if name == "vgg11":  # a step changes running statistics even at rate 0
            close(f"{name} by model.init", predicted(checkpoint), want)


def check_gpt2():
    vocabulary, context, rows = 65, 24, 5
    tokens = numpy.random.default_rng(2).integers(0, vocabulary, rows * context + 1)
    with h5py.File("tokens.h5", "w", libver="v110") as file:
        file.attrs.update(format="trireme-dataset", version=1, kind="tokens", target="next", vocabulary=vocabulary)
        for split in "train", "test":
            file[split + "/x"] = tokens.astype("u2")
    name = f"gpt layers=3 heads=4 dim=32 context={context}"
    config = transformers.GPT2Config(vocab_size=vocabulary, n_positions=context, n_embd=32, n_layer=3, n_head=4,
                                     initializer_range=0.3)
    ids = torch.from_numpy(tokens[:-1].reshape(rows, context))
    after = torch.from_numpy(tokens[1:].reshape(rows, context))

    def loss_of(model):
        with torch.no_grad():
            return torch.nn.functional.cross_entropy(model.eval()(ids).logits.flatten(0, 1), after.flatten()).item()

    def evaluated(*arguments):
        return numpy.array(json.loads(trireme("eval", *arguments, "--data.file=tokens.h5", "--json"))["loss"])

    checkpoint = train(name, "tokens.h5", "--train.steps=2", "--optim.name=adam", "--optim.lr=0.01")
    trireme("export", checkpoint, "--format=safetensors", "--out=ours.safetensors")
    model = transformers.GPT2LMHeadModel(config)
    missing = model.transformer.load_state_dict(load_file("ours.safetensors"))
    close(f"gpt2 there {missing}", evaluated(checkpoint), loss_of(model))

    trireme("export", checkpoint, "--format=onnx", "--out=model.onnx")
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    with torch.no_grad():
        want = model(ids).logits.numpy()
    close("gpt2 in onnxruntime", session.run(["scores"], {"tokens": ids.numpy()})[0], want)

    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained("theirs")
    close("gpt2 and back", evaluated("theirs/model.safetensors", f"--model={name}"), loss_of(model))
    checkpoint = train(name, "tokens.h5", "--model.init=theirs/model.safetensors", "--train.steps=1", "--optim.lr=0")
    close("gpt2 by model.init", evaluated(checkpoint), loss_of(model))


check_images()
check_gpt2()
print("all weights and graphs agree")
