"""Disks of a size that a test can fill: those of ``nextgen chaos``."""

from nextgen.harness.chaos.nodes.disks import MIB, MountRefused, SmallDisk, small_disks

__all__ = ["MIB", "MountRefused", "SmallDisk", "small_disks"]
