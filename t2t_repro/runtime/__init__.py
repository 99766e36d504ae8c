"""TensorFlow, Keras and the devices of this machine."""
