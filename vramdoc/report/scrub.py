"""Rules that take secrets, addresses, prompts and names out of one text, each by the form it is written in.

What has no form of its own is learned first: user names from home folders and prompts like ``user@host``, host names from
launchers' lines. It decides nothing about which texts are shown.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable

from vramdoc.record.environment import SHOWN
from vramdoc.report.project_paths import cut_paths, folder_of_projects, users_in

HIDDEN = "<hidden>"

_SETTINGS = (
    "PYTORCH_",
    "TORCH",
    "CUDA_",
    "CUBLAS",
    "CUDNN_",
    "NCCL_",
    "NVIDIA_",
    "HSA_",
    "HIP_",
    "VRAMDOC_",
    "OMP_",
    "MKL_",
    "VLLM_",
)
"""Families of variables that set something: in a sentence or a command ("run with CUDA_LAUNCH_BLOCKING=1") the value may stay."""

_PRIVATE_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "PWD",
        "OLDPWD",
        "HOSTNAME",
        "HOST",
        "MAIL",
        "SHELL",
        "TMPDIR",
    }
)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")

_PRIVATE_WORD = (
    r"(?:passw(?:or)?d|passphrase|secret|credential|api[-_]?key|access[-_]?key|private[-_]?key|auth(?:orization)?"
    r"|cookie|token(?!s|i[sz])|proxy|prompt|messages|conversation|system[-_]?message)"
)  # fmt: skip
_SECRET_KEY = re.compile(_PRIVATE_WORD, re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d[\d.,]*(?:\s*[KMGT]?i?B)?")
_QUOTED = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"

_TOKENS = re.compile(
    r"\b(?:hf|api_org)_[A-Za-z0-9]{10,}|\bsk-[A-Za-z0-9_-]{10,}|\bgh[opusr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bglpat-[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bxox[abeprs]-[\w-]{10,}|\bAIza[\w-]{30,}|\bya29\.[\w-]{10,}"
    r"|\bpypi-[\w-]{16,}|\bnpm_[A-Za-z0-9]{20,}|\bnvapi-[\w-]{10,}|\br8_[A-Za-z0-9]{20,}|\bgsk_[A-Za-z0-9]{20,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|\Z)"
    r"|(?<=Bearer )\S+|(?<=Basic )[A-Za-z0-9+/=]{8,}"
    r"|\b(?:GPU|MIG)-[0-9a-f-]{16,}|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|(?<!\w)[0-9a-fA-F]{32,}(?!\w)"
    r"|(?<!\w)(?=[A-Za-z0-9]*[a-z])(?=[A-Za-z0-9]*[A-Z])(?=[A-Za-z0-9]*\d)[A-Za-z0-9]{32,}(?!\w)"
)
"""Tokens of well-known services, JSON Web Tokens, keys, device UUIDs, and long runs that only a machine writes."""

_OPTION = re.compile(
    rf"(?P<name>--?[\w-]*{_PRIVATE_WORD}[\w-]*)(?P<join>=|\s+)(?P<value>{_QUOTED}|[^\s-]\S*)",
    re.IGNORECASE,
)
_FIELD = re.compile(
    rf"(?P<name>\b[\w-]*{_PRIVATE_WORD}[\w-]*[\"']?)(?P<join>\s*[:=]\s*)(?P<value>{_QUOTED}|[^\s\"'][^\n]*|[\"'][^\n]*)",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(rf"(?P<name>\b[A-Z][A-Z0-9_]+)(?P<join>=)(?P<value>{_QUOTED}|[^\s\"']+)")
_LITERAL = re.compile(
    r"(?P<name>[(\[{=,])(?P<join>\s*[rbfu]{0,2})(?P<value>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
)
"""A string literal in a line of source code; several words in one are somebody's text."""

_ERROR = re.compile(r"out of memory|CUDA error|CUBLAS_|Allocation on device|not resizable")
"""What a literal of a program's own error says; wrappers quote it as if it were source."""

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>)\]}]+")
_PUBLIC_URL = re.compile(
    r"https://(?:(?:docs\.)?pytorch\.org|docs\.nvidia\.com|developer\.nvidia\.com|github\.com/(?:pytorch|huggingface)|huggingface\.co/docs)(?:[/#][\w./#-]*)?"
)
_AT_HOST = re.compile(
    r"\b(?P<user>[\w.+-]+)@(?P<host>[A-Za-z][\w-]*(?:\.[\w-]+)*|\d{1,3}(?:\.\d{1,3}){3})"
)
_IPV4 = re.compile(
    r"(?P<before>(?:\b(?:version|cublas|cudnn|nccl|driver|cuda|tensorrt)[\w-]*\s*:?\s*|[=<>~v-])?)(?<![\w.])(?P<ip>\d{1,3}(?:\.\d{1,3}){3})(?!\.?\w)",
    re.IGNORECASE,
)
"""Four numbers are an address unless they follow what has versions of four numbers."""
_COLONS = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:%\w+)?(?![\w:])")
_MAC = re.compile(r"\b[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}\b")

_HOSTS = (
    re.compile(r"^\s*host\s*:\s*(?P<host>[\w.-]+)\s*$", re.MULTILINE),  # torchrun's failure summary
    re.compile(r"^(?:\S+\s)?(?P<host>[\w.-]+):\d+:\d+ \[\d+\] NCCL", re.MULTILINE),
    re.compile(r"\bsrun: error: (?P<host>[\w.-]+): task"),
    re.compile(r"^\[(?P<host>[A-Za-z][\w.-]*):\d+\]", re.MULTILINE),  # Open MPI
    re.compile(
        r"\b(?:HOSTNAME|HOST|SLURMD_NODENAME|MASTER_ADDR|hostname)\s*[=:]\s*(?P<host>[A-Za-z][\w.-]*)"
    ),
)
_USERS = (
    re.compile(
        r"\b(?:USER|LOGNAME|USERNAME|user(?:name)?)\s*[=:]\s*[\"']?(?P<user>[A-Za-z][\w.-]*)"
    ),
    re.compile(r"\bpytest-of-(?P<user>[\w.-]+?)(?=/|\s|$)"),
)
_COMMON = frozenset(
    {
        "root", "user", "users", "ubuntu", "admin", "home", "runner", "jovyan", "work", "app", "model", "models", "data", "torch",
        "python", "train", "test", "cuda", "gpu", "localhost", "host", "none", "null", "default", "worker", "rank", "node", "local",
        "error", "memory", "project", "the", "and", "device", "shared", "public", "debian", "nvidia", "anaconda", "conda", "docker",
    }
)  # fmt: skip
"""Names that say nothing about a person, or whose removal would take words out of our own sentences."""


class Scrubber:
    """Cleans texts of one report, with the names and project folders learned from all of them."""

    def __init__(self, *, texts: Iterable[str], names: Collection[str] = ()) -> None:
        kept = list(dict.fromkeys(texts))
        self._projects = folder_of_projects(kept)
        learned = {name for name in (*names, *users_in(kept), *_learn(kept)) if _is_a_name(name)}
        longest_first = sorted(learned, key=lambda name: (-len(name), name))
        words = "|".join(re.escape(name) for name in longest_first)
        self._names = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])") if words else None

    def __call__(self, text: str) -> str:
        """``text`` without its private parts."""
        text = _TOKENS.sub(HIDDEN, text)
        text = _OPTION.sub(_hide_value, text)
        text = _ASSIGNMENT.sub(_hide_unlisted, text)
        text = _FIELD.sub(_hide_value, text)
        text = _LITERAL.sub(_hide_prose, text)
        text = _URL.sub(lambda m: m[0] if _PUBLIC_URL.fullmatch(m[0]) else HIDDEN, text)
        text = _AT_HOST.sub(HIDDEN, text)
        text = cut_paths(text, self._projects)
        text = _MAC.sub(HIDDEN, text)
        text = _IPV4.sub(lambda m: m[0] if m["before"] else HIDDEN, text)
        text = _COLONS.sub(_hide_ipv6, text)
        return self._names.sub(HIDDEN, text) if self._names else text


def is_allowed_variable(name: str) -> bool:
    """Whether the value of a mapping's key may be shown: it is no environment variable, or one on the recorder's allow-list."""
    looks_like_one = name in _PRIVATE_NAMES or _VARIABLE.fullmatch(name) is not None
    return not looks_like_one or name in SHOWN


def is_secret_name(name: str) -> bool:
    """Whether a key names something that nobody should read, a prompt included."""
    return _SECRET_KEY.search(name) is not None


def _is_a_name(name: str) -> bool:
    return len(name) >= 3 and name.lower() not in _COMMON and not name.isdigit()


def _learn(texts: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for text in texts:
        for pattern, group in (*((p, "host") for p in _HOSTS), *((p, "user") for p in _USERS)):
            found.update(match[group] for match in pattern.finditer(text))
        for match in _AT_HOST.finditer(text):
            found.update((match["user"], match["host"], match["host"].split(".")[0]))
    return found


def _hide_value(match: re.Match[str]) -> str:
    if _NUMBER.match(match["value"]) or HIDDEN in match["value"]:
        return match[0]
    return f"{match['name']}{match['join']}{HIDDEN}"


def _hide_unlisted(match: re.Match[str]) -> str:
    name = match["name"]
    if is_allowed_variable(name) or (name.startswith(_SETTINGS) and not is_secret_name(name)):
        return match[0]
    return f"{name}{match['join']}{HIDDEN}"


def _hide_prose(match: re.Match[str]) -> str:
    if len(match["value"].split()) < 4 or _ERROR.search(match["value"]):
        return match[0]
    return f"{match['name']}{match['join']}{match['value'][0]}{HIDDEN}{match['value'][-1]}"


def _hide_ipv6(match: re.Match[str]) -> str:
    try:
        ipaddress.IPv6Address(match[0].partition("%")[0])
    except ValueError:
        return match[0]
    return HIDDEN
