"""Prediction of a step under autocast, from the operators of an FP32 or TF32 step."""
