"""An encoder of pictures: two small convolutions, and a mean over what each channel found."""

from __future__ import annotations

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """The encoder ``vis_encode_type: small_cnn``. It takes pictures of any size from 4 × 4 on."""

    def __init__(self, shape: tuple[int, int, int], features: int) -> None:
        """shape: channels, height, width. Raises ValueError for pictures that are too small."""
        super().__init__()
        channels, height, width = shape
        if min(height, width) < 4:
            raise ValueError(f"small_cnn needs pictures of at least 4 x 4, got {width} x {height}")
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.dense = nn.Linear(32, features)
        self.widest = 16 * ((height + 1) // 2) * ((width + 1) // 2)
        """Numbers that one picture is in the widest layer: by it the trainer says how many go through at once."""

    def forward(self, pictures: Tensor) -> Tensor:
        """Maps [B, C, H, W] with values in [0, 1] to [B, features]."""
        found: Tensor = self.layers(pictures).mean(dim=(2, 3))
        return self.dense.forward(found).relu()
