"""AllocatorConfig: PYTORCH_CUDA_ALLOC_CONF text to settings, refused exactly where the release would refuse it.

``AllocatorConfig.parse`` is the environment variable at start-up; ``AllocatorConfig.reset`` is a new string at run time
(torch.cuda.memory._set_allocator_settings), which keeps some of the settings in force. Neither knows what a setting does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vramdoc.allocator.grammar import (
    Checked,
    Grammar,
    Lenient,
    Refusal,
    double,
    is_power_of_2,
    unsigned_int64,
)
from vramdoc.allocator.options import KEYS, OPTIONS, Reader, keys_of
from vramdoc.allocator.releases import NEWEST, Rules, rules_for
from vramdoc.errors import UsageError
from vramdoc.units import MIB

UNLIMITED = (1 << 64) - 1
"""max_split_size when the option is not set: SIZE_MAX."""
LARGE_SEGMENT = 20 * MIB
"""kLargeBuffer, and the default of large_segment_size_mb."""
MIN_LARGE_ALLOC_MB = 10
ROUNDUP_INTERVALS = 16
"""Intervals of roundup_power2_divisions: 1 MiB, 2 MiB ... 32 GiB and more."""
BACKENDS = ("native", "cudaMallocAsync")


class ConfigError(UsageError):
    """A config string that this torch release refuses.

    ``exception`` and ``reason`` are the class and text of PyTorch's own error. ``aborts`` says that the process dies while
    ``import torch`` runs, with nothing to catch. ``partial`` is what is in force after the error, as PyTorch does not roll
    back what it read before.
    """

    def __init__(self, text: str, refusal: Refusal, partial: AllocatorConfig) -> None:
        moment = "aborts in import torch" if refusal.aborts else "refuses it"
        super().__init__(
            f"{text!r}: torch {partial.release} {moment}: {refusal.exception}: {refusal.reason}",
            "`vramdoc explain` shows what each option accepts",
        )
        self.exception = refusal.exception
        self.reason = refusal.reason
        self.aborts = refusal.aborts
        self.partial = partial


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorConfig:
    """The settings in force. Sizes in bytes; names as in c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig."""

    release: str = NEWEST
    """Minor release whose parser read the text."""
    text: str = ""
    backend: str = "native"
    max_split_size: int = UNLIMITED
    max_non_split_rounding: int = LARGE_SEGMENT
    large_segment_size: int = LARGE_SEGMENT
    roundup_power2_divisions: tuple[int, ...] = (0,) * ROUNDUP_INTERVALS
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    release_lock_on_cudamalloc: bool = False
    per_process_memory_fraction: float = 1.0
    throw_on_cudamalloc_oom: bool = False
    graph_capture_record_stream_reuse: bool = False
    expandable_segments_reserve: str = ""
    """As written; how much address space it means depends on the device."""
    host: Mapping[str, int | bool] = field(default_factory=dict)
    """Options of pinned host memory that were set, by key. They never change device memory."""
    warnings: tuple[str, ...] = ()
    """What PyTorch warns about and then goes on."""

    @classmethod
    def parse(cls, text: str, *, release: str = NEWEST) -> AllocatorConfig:
        """Read ``text`` as torch ``release`` reads the environment variable at start-up.

        Raises:
            ConfigError: the release refuses the string, with PyTorch's exception class and reason.
            UsageError: the release is not a simulated one.
        """
        rules = rules_for(release)
        return _Reading(cls(release=rules.release, text=text), rules, {}).at_start(text)

    def reset(self, text: str) -> AllocatorConfig:
        """Read ``text`` as a new setting at run time (setAllocatorSettings).

        max_split_size, roundup and the garbage collection threshold go back to their defaults first, from 2.11 on
        max_non_split_rounding too; every other setting that ``text`` does not name stays.

        Raises:
            ConfigError: as for ``parse``; its ``partial`` is then in force.
        """
        rules = rules_for(self.release)
        settings: dict[str, Any] = {
            "max_split_size": UNLIMITED,
            "roundup_power2_divisions": (0,) * ROUNDUP_INTERVALS,
            "garbage_collection_threshold": 0.0,
        }
        if rules.resets_non_split_rounding:
            settings["max_non_split_rounding"] = None
        return _Reading(replace(self, text=text, warnings=()), rules, settings).at_run_time(text)

    def for_release(self, release: str) -> AllocatorConfig:
        """The same text as another release reads it at start-up.

        Raises:
            ConfigError: that release refuses it.
            UsageError: the settings were changed since start-up, so no text stands for them.
        """
        if self.release == rules_for(release).release:
            return self
        if self != AllocatorConfig.parse(self.text, release=self.release):
            raise UsageError(
                f"settings in force in torch {self.release} cannot be taken to torch {release}"
            )
        return AllocatorConfig.parse(self.text, release=release)

    def without_expandable_segments(self, why: str) -> AllocatorConfig:
        """The effective settings on a platform that has no expandable segments: PyTorch warns and goes on without."""
        if not self.expandable_segments:
            return self
        return replace(self, expandable_segments=False, warnings=(*self.warnings, why))


class _Reading:
    """One pass or more over one string; collects settings until the end or the first refusal."""

    def __init__(self, config: AllocatorConfig, rules: Rules, settings: dict[str, Any]) -> None:
        self.config = config
        self.rules = rules
        self.settings = settings
        self.host = dict(config.host)
        self.warnings: list[str] = []
        self.named: set[str] = set()
        self.at_start_up = True

    # Order of the passes

    def at_start(self, text: str) -> AllocatorConfig:
        if not self.rules.lenient_grammar:
            return self._guard(text, lambda: self._checked(Checked(text)))

        def passes() -> None:
            grammar = Lenient(text)
            try:
                _scan_for_backend(grammar)
            except Refusal as refusal:
                raise Refusal(refusal.exception, refusal.reason, aborts=True) from None
            self._pass(grammar.rewind(), Reader.CUDA)
            self._pass(grammar.rewind(), Reader.GENERIC)

        return self._guard(text, passes)

    def at_run_time(self, text: str) -> AllocatorConfig:
        self.at_start_up = False
        if not self.rules.lenient_grammar:
            return self._guard(text, lambda: self._checked(Checked(text)))

        def passes() -> None:
            grammar = Lenient(text)
            self._pass(grammar, Reader.GENERIC)
            self._pass(grammar.rewind(), Reader.CUDA)

        return self._guard(text, passes)

    def _guard(self, text: str, passes: Callable[[], None]) -> AllocatorConfig:
        try:
            passes()
        except Refusal as refusal:
            raise ConfigError(text, refusal, self._result()) from None
        self._warn_about_backend()
        return self._result()

    def _result(self) -> AllocatorConfig:
        settings = dict(self.settings)
        if settings.get("max_non_split_rounding", 0) is None:
            settings["max_non_split_rounding"] = self.large_segment_size
        return replace(self.config, host=self.host, warnings=tuple(self.warnings), **settings)

    def _checked(self, grammar: Checked) -> None:
        known = keys_of(self.config.release)
        for key in grammar.each_key():
            if key not in known:
                raise Refusal("RuntimeError", f"Unrecognized CachingAllocator option: {key}")
            self._read(KEYS[key].key, grammar)

    def _pass(self, grammar: Lenient, reader: Reader) -> None:
        known = keys_of(self.config.release)
        if reader is Reader.GENERIC:
            self._large_segment_first(grammar, known)
        at_run_time = reader is Reader.GENERIC
        for key in grammar.each_key():
            if key not in known:
                whose = "Accelerator" if at_run_time else "CUDA"
                raise Refusal(
                    "ValueError", f"Unrecognized key '{key}' in {whose} allocator config."
                )
            if KEYS[key].reader is reader and key != "large_segment_size_mb":
                self._read(KEYS[key].key, grammar)
            else:
                grammar.skip()

    def _large_segment_first(self, grammar: Lenient, known: frozenset[str]) -> None:
        """The bounds of the split options hang on it, so PyTorch reads it first wherever it stands."""
        if "large_segment_size_mb" not in known:
            return
        for position, key in enumerate(grammar.tokens):
            if key == "large_segment_size_mb":
                grammar.here = position
                self._read(key, grammar)
        grammar.rewind()

    def _read(self, key: str, grammar: Grammar) -> None:
        self.named.add(key)
        _READERS[key](self, key, grammar)

    # Values

    @property
    def large_segment_size(self) -> int:
        size: int = self.settings.get("large_segment_size", self.config.large_segment_size)
        return size

    def refuse(self, reason: str) -> Refusal:
        return Refusal("ValueError" if self.rules.lenient_grammar else "RuntimeError", reason)

    def number(self, key: str, grammar: Grammar) -> int:
        return grammar.integer(grammar.value(f"Error, expecting {key} value")) % (1 << 64)

    def split_bound(self, key: str, grammar: Grammar) -> None:
        megabytes = self.number(key, grammar)
        least = self.large_segment_size // MIB
        if self.rules.lenient_grammar:
            fits, bound = megabytes >= least, f">= {least}"
        else:
            fits, bound = megabytes > least, f"> {least}"
        if not fits:
            raise self.refuse(f"CachingAllocator option {key} too small, must be {bound}")
        self.settings[key.removesuffix("_mb")] = min(megabytes, UNLIMITED // MIB) * MIB

    def large_segment(self, key: str, grammar: Grammar) -> None:
        megabytes = self.number(key, grammar)
        if megabytes <= MIN_LARGE_ALLOC_MB:
            raise self.refuse("CachingAllocator option large_segment_size_mb must be > 10 MB")
        self.settings["large_segment_size"] = min(megabytes, UNLIMITED // MIB) * MIB

    def gc_threshold(self, key: str, grammar: Grammar) -> None:
        value = double(grammar.value(f"Error, expecting {key} value"))
        if self.rules.lenient_grammar:
            if not 0.0 < value < 1.0:
                raise self.refuse("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")
        elif not value > 0.0:
            raise self.refuse("garbage_collect_threshold too small, set it 0.0~1.0")
        elif not value < 1.0:
            raise self.refuse("garbage_collect_threshold too big, set it 0.0~1.0")
        self.settings[key] = value

    def fraction(self, key: str, grammar: Grammar) -> None:
        value = double(grammar.value(""))
        if not 0.0 <= value <= 1.0:
            raise self.refuse("per_process_memory_fraction is invalid, set it in [0.0, 1.0]")
        self.settings[key] = value

    def switch(self, key: str, grammar: Grammar) -> None:
        self.settings[key] = grammar.switch(key)

    def host_switch(self, key: str, grammar: Grammar) -> None:
        self.host[key] = grammar.switch(key, missing=f"Error, expecting {key} value")

    def register_threads(self, key: str, grammar: Grammar) -> None:
        threads = self.number(key, grammar)
        got = f", got {threads}" if self.rules.lenient_grammar else ""
        if not is_power_of_2(threads):
            raise self.refuse(f"Number of register threads has to be power of 2{got}")
        if threads > 128:
            raise self.refuse(
                f"Number of register threads should be less than or equal to 128{got}"
            )
        self.host[key] = threads

    def reserve_segment(self, key: str, grammar: Grammar) -> None:
        megabytes = self.number(key, grammar)
        if megabytes == 0:
            raise self.refuse("Pinned reserve segment size has to be greater than 0")
        self.host[key] = megabytes

    def host_size(self, key: str, grammar: Grammar) -> None:
        self.host[key] = self.number(key, grammar)

    def backend(self, key: str, grammar: Grammar) -> None:
        name = grammar.value("Error parsing backend value")
        if name not in BACKENDS:
            raise self.refuse("Unknown allocator backend, options are native and cudaMallocAsync")
        if not self.at_start_up and name != self.config.backend:
            pair = f", {name} != {self.config.backend}" if self.rules.lenient_grammar else ""
            raise Refusal(
                "RuntimeError",
                "Allocator backend parsed at runtime != allocator backend parsed at load time"
                + pair,
            )
        self.settings[key] = name

    def reserve(self, key: str, grammar: Grammar) -> None:
        if key == "expandable_segments_reserve":
            self.settings[key] = grammar.value("")
        else:
            grammar.skip()

    def divisions(self, key: str, grammar: Grammar) -> None:
        first = grammar.value(f"Error, expecting {key} value")
        word = self.rules.divisions_word
        if first != "[":
            value = grammar.integer(first)
            if not is_power_of_2(value):
                raise self.refuse(f"For roundups, the {word} has to be power of 2 ")
            self.settings[key] = (value % (1 << 64),) * ROUNDUP_INTERVALS
            return
        table = list(self.settings.get(key, self.config.roundup_power2_divisions))
        last, seen = 0, False
        for boundary, value in grammar.division_pairs():
            if value != 0 and not is_power_of_2(value):
                raise self.refuse(
                    f"For roundups, the {word} has to be power of 2 or 0 to disable roundup "
                )
            if boundary == ">":
                start = last + 1 if self.rules.tail_spares_last_boundary else last
                table[start:] = [value] * (ROUNDUP_INTERVALS - start)
                continue
            megabytes = unsigned_int64(
                boundary, "stoull" if self.rules.lenient_grammar else "stoul"
            )
            if not is_power_of_2(megabytes):
                raise self.refuse("For roundups, the intervals have to be power of 2 ")
            last = min(megabytes.bit_length() - 1, ROUNDUP_INTERVALS - 1)
            if not seen:
                table[:last], seen = [value] * last, True
            table[last] = value
        self.settings[key] = tuple(table)

    def _warn_about_backend(self) -> None:
        if self.settings.get("backend", self.config.backend) == "native":
            return
        ignored = {
            key
            for key in self.named
            if OPTIONS[key].device_memory
            and key != "backend"
            and (not self.rules.lenient_grammar or OPTIONS[key].reader is Reader.CUDA)
        }
        if ignored:
            self.warnings.append(
                "backend:cudaMallocAsync ignores max_split_size_mb,"
                "roundup_power2_divisions, and garbage_collect_threshold."
            )


_READERS: Mapping[str, Callable[[_Reading, str, Grammar], None]] = {
    "backend": _Reading.backend,
    "max_split_size_mb": _Reading.split_bound,
    "max_non_split_rounding_mb": _Reading.split_bound,
    "large_segment_size_mb": _Reading.large_segment,
    "roundup_power2_divisions": _Reading.divisions,
    "garbage_collection_threshold": _Reading.gc_threshold,
    "expandable_segments": _Reading.switch,
    "release_lock_on_cudamalloc": _Reading.switch,
    "per_process_memory_fraction": _Reading.fraction,
    "throw_on_cudamalloc_oom": _Reading.switch,
    "graph_capture_record_stream_reuse": _Reading.switch,
    "pinned_use_cuda_host_register": _Reading.host_switch,
    "pinned_num_register_threads": _Reading.register_threads,
    "pinned_use_background_threads": _Reading.host_switch,
    "pinned_reserve_segment_size_mb": _Reading.reserve_segment,
    "pinned_free_catch_all": _Reading.host_switch,
    "pinned_max_round_threshold_mb": _Reading.host_size,
    "pinned_max_cached_size_mb": _Reading.host_size,
    "expandable_segments_reserve": _Reading.reserve,
    "expandable_segments_reserve_by_class": _Reading.reserve,
}


def _scan_for_backend(grammar: Lenient) -> None:
    """The scan of a static initialiser for ``backend`` alone (torch 2.10 and newer); its errors kill the process."""
    for key in grammar.each_key():
        if key == "backend":
            grammar.value()
            return
        grammar.skip()
