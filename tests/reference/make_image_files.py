#!/usr/bin/env python3
"""Records image files and what Pillow makes of them, for tests/unit/test_import_images.c.

    python3 make_image_files.py [FOLDER]     writes image_files.txt (default: beside this script)

A line is: name, channels, height, width, the file in hexadecimal, and its pixels (C, H, W) in hexadecimal after
convert(), resize(BILINEAR) to the size of torchvision's Resize, and the crop of its CenterCrop.
"""
import io
import os
import sys

import numpy as np
from PIL import Image


def picture(height, width, channels, seed):
    """Waves and some noise."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 90 * np.sin(x / (2.0 + c) + y / (3.5 - c)) + random.normal(0, 12, (height, width))
              for c in range(channels)]
    pixels = np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)
    return pixels[:, :, 0] if channels == 1 else pixels


def fit(image, height, width):
    w, h = image.size
    size = (width, width * h // w) if width * h >= height * w else (height * w // h, height)
    image = image.resize(size, Image.BILINEAR)
    left, top = int(round((size[0] - width) / 2.0)), int(round((size[1] - height) / 2.0))
    return image.crop((left, top, left + width, top + height))


def encode(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    color, gray = Image.fromarray(picture(19, 31, 3, 1)), Image.fromarray(picture(24, 17, 1, 2))
    alpha = Image.fromarray(picture(15, 15, 4, 3), "RGBA")
    cases = [
        ("color.png", encode(color, "PNG"), 3, 8, 8), ("color.png", encode(color, "PNG"), 1, 19, 31),
        ("color.png", encode(color, "PNG"), 3, 12, 30), ("gray.png", encode(gray, "PNG"), 1, 9, 5),
        ("gray.png", encode(gray, "PNG"), 3, 4, 4), ("larger.png", encode(gray, "PNG"), 1, 33, 26),
        ("alpha.png", encode(alpha, "PNG"), 3, 7, 7), ("palette.png", encode(color.quantize(16), "PNG"), 3, 10, 10),
        ("bits.png", encode(gray.convert("1"), "PNG"), 1, 24, 17),
        ("color.jpg", encode(color, "JPEG", quality=80), 3, 19, 31), ("color.jpg", encode(color, "JPEG"), 1, 8, 8),
        ("full.jpg", encode(color, "JPEG", subsampling=0, progressive=True), 3, 9, 9),
        ("gray.jpg", encode(gray, "JPEG"), 1, 24, 17), ("gray.jpg", encode(gray, "JPEG"), 3, 5, 6),
    ]
    with open(os.path.join(folder, "image_files.txt"), "w") as out:
        for name, file, channels, height, width in cases:
            image = fit(Image.open(io.BytesIO(file)).convert("L" if channels == 1 else "RGB"), height, width)
            pixels = np.asarray(image).reshape(height, width, channels).transpose(2, 0, 1)
            print(name, channels, height, width, file.hex(), pixels.tobytes().hex(), file=out)


main()
