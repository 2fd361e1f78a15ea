"""The order of a sensor's values in a simulator's messages, and the order in our arrays.

Pictures are (channels, height, width) in every array of ours. Packages before 3.0.0-exp.1 send (height, width,
channels). And three later ones declare (channels, height, width), but write the floats of a picture that is not
compressed in the old order; which of the two a package of this kind does is a ``PictureLayout``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unity_bridge.specs import PICTURE, DimensionProperty, FloatOrder, ObservationSpec, PictureLayout
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.untrusted_text import version_text

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?!\d)")

_FIRST_CHANNELS_FIRST = 3
"""First major version of the Unity package with pictures that are (channels, height, width)."""

_SCRAMBLED = ((3, 0, 0), (4, 0, 0))
"""Versions of the Unity package, their previews included, that write floats in another order than they declare."""

_AMBIGUOUS = (4, 0, 0)
"""The version that checkouts of ML-Agents from git bear, too, which write floats as they declare them."""

_THROTTLED = ThrottledLogger(logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class SensorLayout:
    """One sensor of one simulator, as its messages have it."""

    shape: tuple[int, ...]
    """The shape that the messages declare."""

    channels_last: bool = False
    """Whether the floats of a picture lie as (height, width, channels), whatever the shape says."""

    def arrange(self, floats: NDArray[np.float32], spec: ObservationSpec) -> NDArray[np.float32]:
        """Returns the floats of N rows, which came as [N, size], in the order of our arrays: [N, *spec.shape]."""
        if not self.channels_last:
            return floats.reshape(len(floats), *spec.shape)
        channels, height, width = spec.shape
        pictures = floats.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
        return np.ascontiguousarray(pictures)


def layouts_as_declared(sensors: Sequence[ObservationSpec]) -> tuple[SensorLayout, ...]:
    """Returns the layouts of a simulator that orders values as our arrays do."""
    return tuple(SensorLayout(sensor.shape) for sensor in sensors)


def detect_layout(
    declared: ObservationSpec, package_version: str, picture_layout: PictureLayout = "auto"
) -> tuple[ObservationSpec, SensorLayout]:
    """Returns our spec of a sensor, and the layout of its messages.

    Dimension properties decide. A simulator that gives none is judged by its version: of an unknown one,
    pictures are (channels, height, width).

    Args:
        declared: the sensor as the messages have it.
        package_version: what the simulator said of itself.
        picture_layout: the order of floats in which a simulator that describes its dimensions writes pictures which it
            declares as (channels, height, width).
    """
    version = _version(package_version)
    if _is_channels_last(declared, version):
        height, width, channels = declared.shape
        picture = replace(
            declared, shape=(channels, height, width), dimension_property=PICTURE, float_order="hwc"
        )
        return picture, SensorLayout(declared.shape, channels_last=True)
    if not declared.is_picture:
        return declared, SensorLayout(declared.shape)
    scrambled = declared.shape[0] > 1
    if picture_layout == "auto" or not any(declared.dimension_property):
        scrambled &= version in _SCRAMBLED
        if scrambled:
            _log_scrambled_pictures(package_version, ambiguous=version == _AMBIGUOUS)
    else:
        scrambled &= picture_layout == "hwc"
    order: FloatOrder = "hwc" if scrambled else "chw"
    picture = replace(declared, dimension_property=PICTURE, float_order=order)
    return picture, SensorLayout(declared.shape, channels_last=scrambled)


def _is_channels_last(declared: ObservationSpec, version: tuple[int, ...] | None) -> bool:
    if len(declared.shape) != 3:
        return False
    if not any(declared.dimension_property):
        return version is not None and version[0] < _FIRST_CHANNELS_FIRST
    equivariant = [DimensionProperty.TRANSLATIONAL_EQUIVARIANCE in p for p in declared.dimension_property]
    return equivariant == [True, True, False]


def _version(package_version: str) -> tuple[int, ...] | None:
    match = _VERSION.match(package_version)
    return tuple(map(int, match.groups())) if match else None


def _log_scrambled_pictures(package_version: str, *, ambiguous: bool) -> None:
    """Logs this once, not once per simulator and sensor."""
    doubt = (
        ". A package from git of September 2025 or later may call itself 4.0.0, too, and writes them as it declares: "
        "it needs --picture-layout chw"
    )
    if not _THROTTLED.count(package_version):
        _THROTTLED.log(
            package_version,
            f"Unity package {version_text(package_version)} declares pictures as (channels, height, width), but writes "
            f"uncompressed ones as (height, width, channels); they are put in order here{doubt if ambiguous else ''}",
            level=logging.INFO,
        )
