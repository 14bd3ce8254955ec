"""KvLayout: exactly how many bytes of key and value state each layer keeps for a sequence of given length.

From tensor shapes (``layout_of_shape``) widths are exact and windows are known only with config.json; from config.json
alone, see ``kv_config``. It knows nothing of how a cache is stored (``workload.caches``): chunks, blocks and
quantisation come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramdoc.checkpoint.shape import Attention, DecoderShape, LatentAttention, StateMixer
from vramdoc.errors import UnreadableInput

ELEMENT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
STATE_BYTES = 4
"""Recurrent states are kept in float32 whatever the model computes in (transformers 5.24)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKv:
    """One layer's state, in elements: ``key`` and ``value`` for each token, ``constant`` whatever the length."""

    kind: str
    """``"full"``, ``"sliding"``, ``"latent"``, ``"state"``, ``"hybrid"`` (attention beside a state) or ``"shared"``."""
    key: int = 0
    value: int = 0
    constant_bytes: int = 0
    window: int | None = None

    def tokens_kept(self, tokens: int) -> int:
        """A window of W keeps W - 1 past tokens (transformers 5.24, ``DynamicSlidingWindowLayer``)."""
        return tokens if self.window is None else min(tokens, self.window - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """All layers of one model."""

    layers: tuple[LayerKv, ...]
    element_bytes: int

    @property
    def bytes_per_token(self) -> int:
        """What one more token costs while no window is full yet."""
        return sum(layer.key + layer.value for layer in self.layers) * self.element_bytes

    @property
    def unbounded_bytes_per_token(self) -> int:
        """What one more token costs once every window is full."""
        return (
            sum(layer.key + layer.value for layer in self.layers if layer.window is None)
            * self.element_bytes
        )

    def bytes_at(self, tokens: int, *, batch: int = 1) -> int:
        """State of ``batch`` sequences of ``tokens`` tokens each, as a cache that keeps exactly them holds it."""
        per_sequence = sum(
            (layer.key + layer.value) * layer.tokens_kept(tokens) * self.element_bytes
            + layer.constant_bytes
            for layer in self.layers
        )
        return batch * per_sequence


def layout_of_shape(shape: DecoderShape, element_bytes: int | None = None) -> KvLayout:
    """The layout by tensor shapes; elements are as wide as the layers' own type unless ``element_bytes`` says else.

    Raises:
        UnreadableInput: a layer's state size is not in its shapes (a linear-attention layer).
    """
    width = element_bytes or ELEMENT_BYTES[shape.dtype]
    return KvLayout(
        layers=tuple(_layer(block.mixer, width) for block in shape.layers), element_bytes=width
    )


def _layer(mixer: Attention | LatentAttention | StateMixer, element_bytes: int) -> LayerKv:
    match mixer:
        case LatentAttention():
            return LayerKv(kind="latent", key=mixer.latent, value=mixer.rope)
        case Attention():
            kind = "sliding" if mixer.window else "full"
            return LayerKv(
                kind=kind, key=mixer.key_width, value=mixer.value_width, window=mixer.window
            )
        case StateMixer():
            if mixer.state_elements is None:
                raise UnreadableInput(
                    f"the state size of a {mixer.kind} layer is not in its tensor shapes",
                    "put its config.json beside it",
                )
            window = (mixer.conv_elements or 0) * element_bytes
            return LayerKv(kind="state", constant_bytes=window + mixer.state_elements * STATE_BYTES)
