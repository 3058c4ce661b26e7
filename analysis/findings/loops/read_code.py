"""Code that reads values of the GPU less often."""

from __future__ import annotations

from sawtooth.analysis.run.model import CodeChange

TEST_END_LESS_OFTEN = CodeChange(
    "PyTorch",
    "if token.item() == end: break   # after every token",
    "ended |= token == end   # on the GPU\nif step % 16 == 0 and ended.all(): stop = True",
)

CHANGES = (
    CodeChange(
        "PyTorch",
        "running += loss.item()          # every step",
        "running += loss.detach()        # stays on the GPU\nif step % 100 == 0:\n    log(running.item() / 100); running.zero_()",
    ),
    CodeChange(
        "PyTorch",
        "norms = [p.grad.norm().item() for p in model.parameters()]",
        "norms = torch._foreach_norm([p.grad for p in model.parameters()])   # read when you log",
    ),
    CodeChange(
        "Lightning",
        "self.log('loss', loss.item())",
        "self.log('loss', loss)          # Lightning reads it when it logs; Trainer(log_every_n_steps=100)",
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(logging_steps=1)",
        "TrainingArguments(logging_steps=100, logging_nan_inf_filter=False)   # the filter tests each loss on the host",
    ),
)
WAIT_FOR_EARLIER_STEP = CodeChange(
    "PyTorch",
    "done[step % 2].record()\nwhile not done[step % 2].query():   # launches nothing\n    pass",
    "done[step % 2].record()\ndone[(step - 1) % 2].synchronize()   # waits for the step before",
)
COPY_FEWER_TENSORS = (
    CodeChange(
        "PyTorch",
        "right += (out.cpu().argmax(1) == y.cpu()).sum()   # every step",
        "right += (out.argmax(1) == y).sum()   # on the GPU; read it when you log",
    ),
    CodeChange(
        "PyTorch",
        "for cost in costs:\n    rows, columns = linear_sum_assignment(cost.cpu())   # a wait for each",
        "for cost in torch.stack(costs).cpu():   # one copy and one wait\n    rows, columns = linear_sum_assignment(cost)",
    ),
)
