"""Errors of the fuse package."""


class FuseError(Exception):
    """Base of every error that fusion raises."""


class PlanError(FuseError, ValueError):
    """A plan that is malformed or does not fit its prompt."""


class FusionRefused(FuseError):
    """A model or backend whose KV cannot be fused safely; the message is the reason shown to the operator."""
