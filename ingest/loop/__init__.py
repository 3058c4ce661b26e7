"""Models of a training loop that both the recorder and the analysis use.

Standard library only, because the recorder imports this package.
"""
