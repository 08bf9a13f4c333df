"""Prints, as JSON, how many tokens transformers' own processors make of images of many sizes. Run by an engine's own
Python: `python image_sizes.py`. The processors are made of their default configuration; no model is loaded."""

import json
import random

import numpy as np
from PIL import Image
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

SIZES = 40


def main() -> None:
    draw = random.Random(1)
    sizes = [(draw.randint(16, 3000), draw.randint(16, 3000)) for _ in range(SIZES)]
    qwen, pixtral = Qwen2VLImageProcessorPil(), PixtralImageProcessorPil()
    found = []
    for width, height in sizes:
        image = Image.fromarray(np.zeros((height, width, 3), dtype=np.uint8))
        grid = qwen(images=[image], return_tensors="np")["image_grid_thw"][0]
        high, wide = (side // pixtral.patch_size["height"] for side in pixtral(images=[image])["image_sizes"][0])
        found.append(
            {
                "width": width,
                "height": height,
                "qwen2-vl": int(np.prod(grid)) // qwen.merge_size**2,
                "pixtral": int(high * wide + high),  # with the end of each row
            }
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
