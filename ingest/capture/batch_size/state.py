"""Save the state that a trial step changes into host memory, and restore the state in place.

The state consists of parameters, buffers, gradients, optimizer states and settings, other objects with a ``state_dict``, and random
generators.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any


class TrainingState:
    """The current state of models, optimizers, scalers, schedulers and generators.

    Raises TypeError for an object without a readable state.
    """

    def __init__(self, torch: Any, objects: Iterable[Any]) -> None:
        self._torch = torch
        # By the id of a tensor: the tensor, its copy, its gradient, and the gradient's copy.
        self._tensors: dict[int, tuple[Any, Any, Any, Any]] = {}
        self._restorers: list[Callable[[], Any]] = []
        for stateful in objects:
            self._save(stateful)
        self._random_restorers = _random_restorers(torch)

    def restore(self) -> None:
        """Free the memory that the steps allocated, and restore everything except random generators."""
        for tensor, _, grad, _ in self._tensors.values():
            if tensor.is_leaf and tensor.grad is not grad:
                tensor.grad = grad
        for restore in self._restorers:
            restore()
        with self._torch.no_grad():
            for tensor, values, grad, grad_values in self._tensors.values():
                tensor.copy_(values)
                if grad is not None:
                    grad.copy_(grad_values)

    def restore_random(self) -> None:
        """Restore the random generators."""
        for restore in self._random_restorers:
            restore()

    def _save(self, stateful: Any) -> None:
        if hasattr(stateful, "named_modules") and hasattr(stateful, "named_buffers"):
            self._save_module(stateful)
        elif hasattr(stateful, "param_groups") and hasattr(stateful, "state"):
            self._save_optimizer(stateful)
        elif hasattr(stateful, "get_state") and hasattr(stateful, "set_state"):
            state = stateful.get_state().clone()
            self._restorers.append(lambda: stateful.set_state(state))
        elif hasattr(stateful, "state_dict") and hasattr(stateful, "load_state_dict"):
            state = copy.deepcopy(stateful.state_dict())
            self._restorers.append(lambda: stateful.load_state_dict(copy.deepcopy(state)))
            # A GradScaler refuses the next step if memory ran out between unscaling and its update.
            if isinstance(stages := getattr(stateful, "_per_optimizer_states", None), dict):
                self._restorers.append(stages.clear)
        else:
            raise TypeError(f"{type(stateful).__name__} has no state that can be restored (no parameters, no state_dict).")

    def _save_module(self, model: Any) -> None:
        for module in model.modules():
            tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            for _, tensor in tensors:
                self._save_tensor(tensor)
            self._restorers.append(partial(_restore_module, module, tensors, module.training))

    def _save_optimizer(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._save_tensor(parameter)
        self._restorers.append(self._restorer(optimizer.state))
        for group in optimizer.param_groups:
            settings = {key: self._restorer(value) for key, value in group.items() if key != "params"}
            self._restorers.append(partial(_restore_settings, group, settings))

    def _save_tensor(self, tensor: Any) -> None:
        if id(tensor) not in self._tensors:
            grad = tensor.grad if tensor.is_leaf else None
            self._tensors[id(tensor)] = (tensor, _host_copy(tensor), grad, _host_copy(grad) if grad is not None else None)

    def _restorer(self, value: Any) -> Callable[[], Any]:
        """Return a function that restores ``value`` in place and returns it."""
        if isinstance(value, self._torch.Tensor):
            self._save_tensor(value)
            return lambda: value
        if isinstance(value, dict):
            parts = {key: self._restorer(part) for key, part in value.items()}

            def restore_dict() -> Any:
                value.clear()
                value.update({key: restore() for key, restore in parts.items()})
                return value

            return restore_dict
        if isinstance(value, list):
            items = [self._restorer(part) for part in value]

            def restore_list() -> Any:
                value[:] = [restore() for restore in items]
                return value

            return restore_list
        saved = copy.deepcopy(value)
        return lambda: copy.deepcopy(saved)


def _host_copy(tensor: Any) -> Any:
    return tensor.detach().to("cpu", copy=True)


def _restore_module(module: Any, tensors: list[tuple[str, Any]], training: bool) -> None:
    for name, tensor in tensors:
        if getattr(module, name) is not tensor:
            setattr(module, name, tensor)
    module.training = training


def _restore_settings(group: dict[str, Any], settings: dict[str, Callable[[], Any]]) -> None:
    group.update({key: restore() for key, restore in settings.items()})


def _random_restorers(torch: Any) -> list[Callable[[], Any]]:
    """Return functions that restore the generators of Python, PyTorch, the GPUs, and NumPy if loaded."""
    python_state, host_state = random.getstate(), torch.get_rng_state()
    restorers: list[Callable[[], Any]] = [lambda: random.setstate(python_state), lambda: torch.set_rng_state(host_state)]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        gpu_states = torch.cuda.get_rng_state_all()
        restorers.append(lambda: torch.cuda.set_rng_state_all(gpu_states))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy_state = numpy.random.get_state()
        restorers.append(lambda: numpy.random.set_state(numpy_state))
    return restorers
