#!/usr/bin/env python3
"""Writes augment.txt: parts of an image resized by PyTorch, and colors changed by torchvision's formulas.

    python3 tests/reference/make_augment.py > tests/reference/augment.txt        (PyTorch 2.13)

The image (3, H, W) has bytes (7 c + 31 y + 13 x + x y) % 251. Lines: "resize TOP LEFT HEIGHT WIDTH", then its values;
"colors BRIGHTNESS CONTRAST SATURATION FIRST SECOND", then values in [0, 1].
"""
import torch

C, H, W = 3, 11, 9
image = torch.tensor([[[(7 * c + 31 * y + 13 * x + x * y) % 251 for x in range(W)] for y in range(H)] for c in range(C)],
                     dtype=torch.float64)


def show(values):
    print(*("%.9g" % v for v in values.flatten().tolist()))


for box in ((0, 0, 11, 9), (2, 1, 5, 6), (10, 8, 1, 1), (3, 0, 8, 9), (1, 4, 7, 2)):
    top, left, height, width = box
    part = image[None, :, top:top + height, left:left + width]
    print("resize", *box)
    show(torch.nn.functional.interpolate(part, size=(H, W), mode="bilinear", align_corners=False, antialias=False))


def grey(x):
    return (0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2])[None]


def blend(x, factor, other):
    return (factor * x + (1 - factor) * other).clamp(0, 1)


change = (lambda x, f: blend(x, f, torch.zeros_like(x)), lambda x, f: blend(x, f, grey(x).mean()),
          lambda x, f: blend(x, f, grey(x)))
try:
    import torchvision.transforms.functional as reference
    theirs = (reference.adjust_brightness, reference.adjust_contrast, reference.adjust_saturation)
    for f in (0.3, 1.0, 1.7):
        for ours, other in zip(change, theirs):
            assert (ours(image / 255, f) - other(image / 255, f)).abs().max() < 1e-3  # its grey has four digits
except ImportError:
    pass
for b, c, s, first, second in ((1.3, 1, 1, 0, 1), (1, 0.4, 1, 1, 0), (1, 1, 1.6, 2, 0), (0.7, 1.4, 0.2, 2, 1),
                               (1.5, 0.6, 1.8, 0, 2)):
    x = image / 255
    for k in (first, second, 3 - first - second):
        x = change[k](x, (b, c, s)[k])
    print("colors", b, c, s, first, second)
    show(x)
