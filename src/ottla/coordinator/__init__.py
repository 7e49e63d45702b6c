"""Coordinators: state machines that live on the partitions of an internal topic. Groups and their offsets now."""
