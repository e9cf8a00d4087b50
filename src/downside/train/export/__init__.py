"""Policies as ONNX graphs."""
