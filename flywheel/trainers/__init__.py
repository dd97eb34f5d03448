"""Models: the policy in process, the tokenizers, the trainers. The only importers of torch, transformers, peft and trl.

Imported lazily: this module is cheap, what it opens is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.environment.policy import SKILL_FILE, Policy, ScriptedPolicy
from flywheel.records import Task

if TYPE_CHECKING:
    from flywheel.trainers.tokenizer import Tokenizer


def open_policy(folder: Path, tasks: Mapping[str, Task]) -> Policy:
    """The policy in a folder: the scripted double where there is a skill.json, else weights.

    `tasks` (by id) are what the double serves; weights do not look at them. Errors: PolicyError naming the folder.
    """
    if (folder / SKILL_FILE).is_file():
        return ScriptedPolicy.load(folder, tasks)
    from flywheel.trainers.local_policy import LocalPolicy

    return LocalPolicy(folder)


def open_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of the policy in a folder; words for the scripted double. Errors: PolicyError naming the folder."""
    from flywheel.trainers.tokenizer import HfTokenizer, WordTokenizer

    return WordTokenizer() if (folder / SKILL_FILE).is_file() else HfTokenizer.open(folder)
