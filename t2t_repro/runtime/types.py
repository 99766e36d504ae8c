"""Types of annotations that several packages share."""

from typing import Any, TypeAlias

# A tensor of the Keras backend in use: TensorFlow's, JAX's or numpy's.
Tensor: TypeAlias = Any
