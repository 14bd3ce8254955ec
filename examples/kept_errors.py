"""A traceback: refused requests are kept for a summary, and each exception keeps the variables of the calls that failed.

    vramdoc diagnose --gpu 2GiB -- python examples/kept_errors.py

The report names the variable and the line at which the call failed, and what keeps the exception.
"""

import torch

MIB = 1 << 20
refused = []


def answer(request):
    prompt = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    if request % 2:
        raise ValueError(f"request {request} is not for us")
    return prompt.numel()


for request in range(200):
    try:
        answer(request)
    except ValueError as error:  # noqa: PERF203 # one request's failure must not end the others
        refused.append(error)
