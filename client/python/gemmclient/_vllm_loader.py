"""vLLM's `--load-format gemmd`: the weights of linear layers come from gemmd by name, and never pass through vLLM's
memory. Where gemmd does not have them, its own loader reads them from the checkpoint first; a second server finds them
there and reads nothing of them. Embeddings, norms, biases and the head are loaded by vLLM.

--model-loader-extra-config takes {"prefix": ..., "format": ...}. The prefix of the weights' names, e.g. "llama." where
`gemmctl load FOLDER --fuse q_proj,k_proj,v_proj=qkv_proj --fuse gate_proj,up_proj=gate_up_proj --prefix llama.` has
loaded them before; without one the names stand for the files (_vllm_plan.prefix_of). The format: that of --quantization
gemmd_*, else "stored", the checkpoint's own."""

from __future__ import annotations

import copy
from typing import Any, Dict, Generator, List, Optional, Set, Tuple

import torch
from safetensors import safe_open
from vllm.config import ModelConfig, VllmConfig
from vllm.config.load import LoadConfig
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    LinearBase,
    LinearMethodBase,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from ._torch.session import session_here
from ._vllm_plan import Layer, Load, Plan, plan, prefix_of
from .errors import InvalidError, NotFoundError, UnsupportedError
from .session import Session
from .torch import GemmdLinear

__all__ = ["LOAD_FORMAT", "GemmdModelLoader", "NamedConfig", "NamedLinearMethod", "register"]

LOAD_FORMAT = "gemmd"
_OPTIONS = ("prefix", "format")
_SPLITS = (ColumnParallelLinear, MergedColumnParallelLinear, QKVParallelLinear, ReplicatedLinear, RowParallelLinear)
_REPLICATED = ("DeepSeekV2FusedQkvAProjLinear",)  # models' own: parts behind one another, on each rank all of them
_OWN_FORMATS = {torch.bfloat16: "bf16", torch.float16: "f16"}


class NamedLinearMethod(LinearMethodBase):
    """Of a layer whose weight gemmd has by a name, which the loader gives: `layer.gemmd_name`."""

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: List[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **_: Any,
    ) -> None:
        """No memory: vLLM finds a parameter where it looks for one."""
        layer.gemmd_shape = (sum(output_partition_sizes), input_size_per_partition)
        weight = torch.nn.Parameter(torch.empty(0, dtype=params_dtype), requires_grad=False)
        weight.weight_loader = _not_by_vllm
        layer.register_parameter("weight", weight)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        if not hasattr(layer, "gemmd"):  # vLLM may come twice
            linear = GemmdLinear(session_here("vllm"), layer.gemmd_name, None, layer.weight.dtype)
            layer.gemmd = linear.to(layer.weight.device)  # borrowed now, before any graph is captured

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        y = layer.gemmd(x)
        return y if bias is None else y + bias


def _not_by_vllm(param: torch.nn.Parameter, *_: Any, **__: Any) -> None:
    raise UnsupportedError("vLLM was about to load a weight that is gemmd's: this model reads its layers in its own way")


class NamedConfig(QuantizationConfig):
    """In the place of the checkpoint's quantization, which goes on for all that is no linear layer."""

    def __init__(self, before: Optional[QuantizationConfig]):
        super().__init__()
        self.before = before

    def get_name(self) -> str:
        return self.before.get_name() if self.before is not None else LOAD_FORMAT

    def get_supported_act_dtypes(self) -> List[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> List[str]:
        return []

    @classmethod
    def from_config(cls, config: Dict[str, Any]) -> "NamedConfig":
        return cls(None)

    def apply_vllm_mapper(self, mapper: Any) -> None:
        if self.before is not None:
            self.before.apply_vllm_mapper(mapper)

    def get_cache_scale(self, name: str) -> Optional[str]:
        return self.before.get_cache_scale(name) if self.before is not None else None

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Optional[QuantizeMethodBase]:
        if isinstance(layer, LinearBase):
            return NamedLinearMethod()
        return self.before.get_quant_method(layer, prefix) if self.before is not None else None


class GemmdModelLoader(DefaultModelLoader):
    def __init__(self, load_config: LoadConfig):
        options = dict(load_config.model_loader_extra_config or {})
        unknown = set(options) - set(_OPTIONS)
        if unknown:
            raise InvalidError(f"--load-format gemmd takes {', '.join(_OPTIONS)}, not {', '.join(sorted(unknown))}")
        self.prefix: Optional[str] = options.get("prefix")
        self.format: Optional[str] = options.get("format")
        own = copy.copy(load_config)
        own.load_format, own.model_loader_extra_config = "safetensors", {}
        super().__init__(own)
        self._plan: Optional[Plan] = None

    def load_model(self, vllm_config: VllmConfig, model_config: ModelConfig, prefix: str = "") -> torch.nn.Module:
        before = vllm_config.quant_config
        chosen = (before.get_name() if before is not None else "").partition("gemmd_")[2]
        if not self.format:
            whole = before is None and _OWN_FORMATS.get(model_config.dtype)
            self.format = chosen or whole or "stored"
        vllm_config.quant_config = NamedConfig(None if chosen else before)
        if before is not None:
            vllm_config.quant_config.packed_modules_mapping = before.packed_modules_mapping
        try:
            return super().load_model(vllm_config, model_config, prefix)
        finally:
            self._plan = None

    def load_weights(self, model: torch.nn.Module, model_config: ModelConfig) -> None:
        _, files, _, _ = self._prepare_weights(model_config.model, None, model_config.revision, False, None)
        named = {path: layer for path, layer in model.named_modules() if _is_named(layer)}
        prefix = self.prefix if self.prefix is not None else prefix_of(files, _label(model_config.model), self.format)
        self._plan = plan(
            [_layer(path, layer, model) for path, layer in named.items()], _tensors(files), prefix, _renaming(model)
        )
        session = session_here("vllm")
        if not _there(session, self._plan.names.values()):
            for load in self._plan.loads:
                _load(session, load, files, self.format)
        for path, layer in named.items():
            layer.gemmd_name = self._plan.names[path]
            self._check(session, path, layer)
        super().load_weights(model, model_config)

    def _check(self, session: Session, path: str, layer: torch.nn.Module) -> None:
        """A name that was there already may stand for something else."""
        info = session.stat(layer.gemmd_name)
        if (info.n, info.k) != layer.gemmd_shape:
            n, k = layer.gemmd_shape
            raise InvalidError(f"{path} is {n}x{k}, and {layer.gemmd_name} is {info.n}x{info.k}")
        if self.format not in ("stored", info.format.name.lower()):
            raise InvalidError(f"{layer.gemmd_name} is {info.format.name.lower()}, not {self.format}")

    def _get_weights_iterator(
        self, source: DefaultModelLoader.Source
    ) -> Generator[Tuple[str, torch.Tensor], None, None]:
        """What is not gemmd's, of each file, and no page of the rest."""
        _, files, _, _ = self._prepare_weights(
            source.model_or_path, source.subfolder, source.revision, False, source.allow_patterns_overrides
        )
        for file in sorted(files):
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():
                    if not self._plan.taken(name):
                        yield source.prefix + name, tensors.get_tensor(name)


def _is_named(layer: torch.nn.Module) -> bool:
    return isinstance(getattr(layer, "quant_method", None), NamedLinearMethod)


def _layer(path: str, layer: torch.nn.Module, model: torch.nn.Module) -> Layer:
    if type(layer) not in _SPLITS and type(layer).__name__ not in _REPLICATED:
        raise UnsupportedError(f"{path}: --load-format gemmd does not know how {type(layer).__name__} is split")
    own = path.rpartition(".")[2]
    packed = getattr(model, "packed_modules_mapping", None) or {}
    names = tuple(packed.get(own, (own,)))
    ranks = 1 if isinstance(layer, ReplicatedLinear) else layer.tp_size
    if ranks > 1 and len(getattr(layer, "output_sizes", names)) != len(names):
        raise UnsupportedError(f"{path}: fused in the checkpoint already, its parts cannot be split over ranks")
    if ranks > 1 and isinstance(layer, QKVParallelLinear) and layer.total_num_kv_heads % ranks:
        raise UnsupportedError(f"{path}: {layer.total_num_kv_heads} heads of keys cannot be split over {ranks} ranks")
    return Layer(path, names, isinstance(layer, RowParallelLinear), layer.tp_rank if ranks > 1 else 0, ranks)


def _renaming(model: torch.nn.Module):
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    return mapper.get_rename_mapper().map_name if mapper is not None else lambda name: name


def _label(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2]


def _tensors(files: List[str]) -> List[str]:
    names: List[str] = []
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            names += tensors.keys()
    return names


def _there(session: Session, names: Any) -> bool:
    wanted: Set[str] = set(names)
    try:
        for name in wanted:
            session.stat(name)
    except NotFoundError:
        return False
    return True


def _load(session: Session, load: Load, files: List[str], format: str) -> None:
    session.load_model(
        *files, format=format, patterns=load.patterns, fuse=load.fuse, prefix=load.prefix, rank=load.rank,
        ranks=load.ranks, columns=load.columns,
    )  # fmt: skip


def register() -> None:
    """vLLM calls it in each of its processes, and may call it again."""
    from vllm.model_executor import model_loader

    if LOAD_FORMAT not in model_loader._LOAD_FORMAT_TO_MODEL_LOADER:
        register_model_loader(LOAD_FORMAT)(GemmdModelLoader)
