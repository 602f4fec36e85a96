#!/usr/bin/env python3
"""Records fine-tuning in PyTorch, for tests/fine_tuning_reference.sh.

    python3 make_fine_tuning.py --inputs FOLDER    writes what both sides begin with; needs no packages
    python3 make_fine_tuning.py [FOLDER]           trains, and writes fine_tuning.txt (default: beside this script);
                                                   needs torch, torchvision, transformers and peft

The inputs: resnet18.safetensors, weights drawn by Python's random under the names of torchvision's resnet18;
pictures/CLASS/N.png; gpt.safetensors, weights of a small GPT-2 under Hugging Face's names; text.txt. Initial weights
that no file has (a new last layer, the matrices A of adapters) are those of Trireme's generator, Philox4x32-10, keyed
by the seed and the number of the parameter (src/nn/model.h, trm_model_init).

A line of fine_tuning.txt: a case, its learning rate, the losses of its steps, and the loss of the training samples
after them, evaluated.
"""
import array
import json
import math
import os
import random
import struct
import sys
import zlib

SEED, STEPS = 3, 20
CLASSES, IMAGES, SIZE = 5, 4, 32
LAYERS, HEADS, DIM, CONTEXT, BATCH, RANK, ALPHA = 2, 2, 16, 20, 8, 4, 6


# -- what both sides begin with

def write_safetensors(path, tensors):
    """tensors: name -> (shape, array of floats)"""
    head, at = {}, 0
    for name, (shape, values) in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(head).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            values.tofile(out)


def uniform(draw, shape, bound, middle=0.0):
    return shape, array.array("f", [middle + bound * (2 * draw() - 1) for _ in range(math.prod(shape))])


def resnet18():
    """Convolutions as He et al. draw them, norms that are not the identity."""
    draw, tensors = random.Random(1).random, {}

    def convolution(name, norm, inputs, outputs, kernel):
        bound = math.sqrt(6 / (outputs * kernel * kernel))
        tensors[name + ".weight"] = uniform(draw, (outputs, inputs, kernel, kernel), bound)
        tensors[norm + ".weight"] = uniform(draw, (outputs,), 0.2, 1)
        tensors[norm + ".bias"] = uniform(draw, (outputs,), 0.2)
        tensors[norm + ".running_mean"] = uniform(draw, (outputs,), 0.2)
        tensors[norm + ".running_var"] = uniform(draw, (outputs,), 0.4, 1)

    convolution("conv1", "bn1", 3, 64, 7)
    inputs = 64
    for stage in range(1, 5):
        outputs = 32 << stage
        for block in range(2):
            name = f"layer{stage}.{block}."
            convolution(name + "conv1", name + "bn1", inputs, outputs, 3)
            convolution(name + "conv2", name + "bn2", outputs, outputs, 3)
            if inputs != outputs:
                convolution(name + "downsample.0", name + "downsample.1", inputs, outputs, 1)
            inputs = outputs
    tensors["fc.weight"] = uniform(draw, (1000, 512), 0.05)
    tensors["fc.bias"] = uniform(draw, (1000,), 0.05)
    return tensors


def pixel(kind, index, channel, y, x):
    """Stripes, whose direction and width are those of the class, with noise."""
    wave = math.sin((kind + 1) * x / 4 + (kind - 2) * y / 5 + channel + index)
    return int(128 + 80 * wave) + (7 * x * x + 5 * y * index + 3 * channel) % 23


def pictures():
    return {(kind, index): [[[pixel(kind, index, c, y, x) for c in range(3)] for x in range(SIZE)]
                            for y in range(SIZE)]
            for kind in range(CLASSES) for index in range(IMAGES)}


def write_png(path, rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    data = zlib.compress(b"".join(b"\0" + bytes(value for color in row for value in color) for row in rows))
    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def text():
    return "".join("abcdefghij klmnop"[(i * i + i // 7) % 17] + ("\n" if i % 40 == 39 else "") for i in range(4000))


def gpt(vocabulary):
    draw, tensors = random.Random(2).random, {}
    tensors["wte.weight"] = uniform(draw, (vocabulary, DIM), 0.5)
    tensors["wpe.weight"] = uniform(draw, (CONTEXT, DIM), 0.3)
    for block in range(LAYERS):
        for name, inputs, outputs in (("ln_1", 0, DIM), ("attn.c_attn", DIM, 3 * DIM), ("attn.c_proj", DIM, DIM),
                                      ("ln_2", 0, DIM), ("mlp.c_fc", DIM, 4 * DIM), ("mlp.c_proj", 4 * DIM, DIM)):
            name = f"h.{block}.{name}"
            if inputs:
                tensors[name + ".weight"] = uniform(draw, (inputs, outputs), 0.3)
            else:
                tensors[name + ".weight"] = uniform(draw, (outputs,), 0.2, 1)
            tensors[name + ".bias"] = uniform(draw, (outputs,), 0.2)
    tensors["ln_f.weight"] = uniform(draw, (DIM,), 0.2, 1)
    tensors["ln_f.bias"] = uniform(draw, (DIM,), 0.2)
    return tensors


def write_inputs(folder):
    write_safetensors(os.path.join(folder, "resnet18.safetensors"), resnet18())
    write_safetensors(os.path.join(folder, "gpt.safetensors"), gpt(len(set(text()))))
    for (kind, index), rows in pictures().items():
        os.makedirs(os.path.join(folder, "pictures", f"class{kind}"), exist_ok=True)
        write_png(os.path.join(folder, "pictures", f"class{kind}", f"{index}.png"), rows)
    with open(os.path.join(folder, "text.txt"), "w") as out:
        out.write(text())


# -- Trireme's initial weights

def philox(counter, key):
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def initial(number, shape, bound):
    """Uniform in [-bound, bound)."""
    import torch
    words = [philox([index // 4, 0, number, 1], [SEED, 0])[index % 4] for index in range(math.prod(shape))]
    return torch.tensor([bound * (2 * (word >> 8) * 2.0 ** -24 - 1) for word in words]).reshape(shape)


# -- in PyTorch

def loaded(tensors):
    import torch
    return {name: torch.tensor(values).reshape(shape) for name, (shape, values) in tensors.items()}


def descend(optimizer, loss_of):
    """Returns the losses of the steps."""
    losses = []
    for step in range(STEPS):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_resnet(rate, freezes, evaluates_frozen):
    """freezes: of a name, whether it is frozen; evaluates_frozen: frozen norms take their running statistics."""
    import torch
    import torchvision
    net = torchvision.models.resnet18(weights=None)
    net.load_state_dict(loaded(resnet18()), strict=False)
    net.fc = torch.nn.Linear(512, CLASSES)
    with torch.no_grad(): # 20 convolutions with a parameter each and 20 norms with four come before
        net.fc.weight.copy_(initial(100, (CLASSES, 512), 1 / math.sqrt(512)))
        net.fc.bias.copy_(initial(101, (CLASSES,), 1 / math.sqrt(512)))
    for name, parameter in net.named_parameters():
        parameter.requires_grad = not freezes(name)
    net.train()
    for name, module in net.named_modules():
        if isinstance(module, torch.nn.BatchNorm2d) and evaluates_frozen and freezes(name + ".weight"):
            module.eval()
    x = torch.tensor(list(pictures().values()), dtype=torch.float32).permute(0, 3, 1, 2) / 255
    target = torch.arange(CLASSES).repeat_interleave(IMAGES)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=rate, momentum=0.9)
    losses = descend(optimizer, lambda step: torch.nn.functional.cross_entropy(net(x), target))
    net.eval()
    with torch.no_grad():
        return losses + [torch.nn.functional.cross_entropy(net(x), target).item()]


def train_gpt(rate):
    import peft
    import torch
    import transformers
    letters = sorted(set(text()))
    tokens = torch.tensor([letters.index(c) for c in text()])
    config = transformers.GPT2Config(vocab_size=len(letters), n_positions=CONTEXT, n_embd=DIM, n_layer=LAYERS,
                                     n_head=HEADS, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    net = transformers.GPT2LMHeadModel(config)
    net.transformer.load_state_dict(loaded(gpt(len(letters))), strict=False)
    net = peft.get_peft_model(net, peft.LoraConfig(r=RANK, lora_alpha=ALPHA, fan_in_fan_out=True,
                                                   target_modules=["c_attn", "c_proj", "c_fc"]))
    number = 2 # of wte and wpe
    adapters = dict(net.named_parameters())
    for block in range(LAYERS):
        for name in "ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj":
            number += 2
            key = f"base_model.model.transformer.h.{block}.{name}.lora_A.default.weight"
            if key in adapters:
                bound = 1 / math.sqrt(adapters[key].shape[1])
                assert abs(adapters[key].abs().max().item() - bound) < 0.1 * bound # as peft draws it
                adapters[key].data.copy_(initial(number, adapters[key].shape, bound))
                number += 2
    rows = [slice(CONTEXT * i, CONTEXT * (i + 1)) for i in range(BATCH * STEPS)]
    x = torch.stack([tokens[row] for row in rows])
    target = torch.stack([tokens[row.start + 1:row.stop + 1] for row in rows])

    def loss_of(at):
        scores = net(input_ids=x[at]).logits
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), target[at].flatten())

    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=rate, weight_decay=0.1)
    net.train()
    losses = descend(optimizer, lambda step: loss_of(slice(BATCH * step, BATCH * (step + 1))))
    net.eval()
    with torch.no_grad():
        return losses + [loss_of(slice(0, BATCH * STEPS)).item()]


def main():
    if len(sys.argv) > 2:
        write_inputs(sys.argv[2])
        return
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))

    def head(name):
        return not name.startswith("fc")

    def lower(name):
        return not name.startswith(("fc", "layer4"))

    cases = [("head", 0.002, train_resnet, head, False), ("head_fixed", 0.02, train_resnet, head, True),
             ("stage", 0.0003, train_resnet, lower, False), ("stage_fixed", 0.0003, train_resnet, lower, True),
             ("lora", 0.02, train_gpt)]
    with open(os.path.join(folder, "fine_tuning.txt"), "w") as out:
        for name, rate, train, *settings in cases:
            print(name, rate, *(f"{value:.7g}" for value in train(rate, *settings)), file=out)


if __name__ == "__main__":
    main()
