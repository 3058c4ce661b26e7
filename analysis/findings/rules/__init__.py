"""The rules, one file each.

Each rule yields findings with evidence, the change as code, and the predicted step time.
"""
