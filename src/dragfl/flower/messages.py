"""dragfl's own messages: orders to clients and their replies, written and checked on both sides.

| message | content |
|---|---|
| train, query.gradient | `model`: w, broadcast; `order`: client, round, accepted, nonce; `attack` for an attacker |
| reply to train | `update`: delta and the extras; `metrics`: num-examples, steps, loss; `reply`: nonce, round |
| reply to query.gradient | `update`: gradient; `metrics`: num-examples; `reply`: nonce, round |

A reply without metrics counts as one sample and one step with an unknown loss. A loss may be NaN or infinite, as in the
simulator: it is only logged. Everything else that is not exactly as declared raises `Refused`.
"""

from __future__ import annotations

from dragfl.flower.hello import Hello, hello_message, hello_reply, read_hello
from dragfl.flower.orders import Order, Payload, classes_of, gradient_message, payload_of, read_order, train_message
from dragfl.flower.replies import gradient_reply, lost_reply, read_gradient, read_update, update_reply

__all__ = [
    "Hello",
    "Order",
    "Payload",
    "classes_of",
    "gradient_message",
    "gradient_reply",
    "hello_message",
    "hello_reply",
    "lost_reply",
    "payload_of",
    "read_gradient",
    "read_hello",
    "read_order",
    "read_update",
    "train_message",
    "update_reply",
]
