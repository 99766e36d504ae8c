"""Base class of layers that consist of other layers."""

import keras


class Composite(keras.layers.Layer):
    """Layer whose sublayers are built by their first calls.

    Without a build(), Keras would trace call() to build them. Keras passes the
    shape of the first argument, whatever the arguments of call() are, since
    there is only one parameter.
    """

    def build(self, x_shape: tuple) -> None:
        """Leave building to the sublayers."""
