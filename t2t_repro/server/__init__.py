"""The embedded server: TensorFlow Serving's REST API and gRPC services."""
