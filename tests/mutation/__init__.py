"""Mutation testing of the arithmetic that every figure rests on."""
