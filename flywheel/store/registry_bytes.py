"""The bytes behind the registry: DVC in process, in one workspace. The only module that imports dvc.

A push is read back object by object, because DVC believes its own index of the remote, which may be older than the
remote. Paths and stage names are absolute or of the root's dvc.yaml, so the caller's folder doesn't matter.

Not covered: git commits and tags (`store/git.py`, `store/registry.py`), the lock that keeps writers apart.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from flywheel.errors import RegistryError
from flywheel.records import canonical_json
from flywheel.store.artifacts import file_sha256, write_atomic

PIPELINE = "dvc.yaml"


@dataclass(frozen=True, slots=True)
class Bytes:
    """DVC in the repository at `root`. Every method raises RegistryError with DVC's reason."""

    root: Path

    def init(self, config: str) -> None:
        """Make .dvc with this configuration; a configuration that is there stays, a half-made .dvc is completed."""
        import dvc.repo

        path = self.root / ".dvc" / "config"
        if not path.is_file():
            _quiet()
            with refused("DVC", f"initialise {self.root}"):
                dvc.repo.Repo.init(str(self.root), force=True).close()
        if not path.read_text(encoding="utf-8").strip():
            write_atomic(path, config.encode())

    def remote(self) -> str:
        """The address of the default remote, as the configuration says it."""
        with self._repo("read its configuration") as repo:
            return str(repo.config["remote"][repo.config["core"]["remote"]]["url"])

    def add(self, folders: Sequence[Path]) -> list[str]:
        """Track the folders; their .dvc files."""
        with self._repo("add the data") as repo:
            repo.add([str(folder) for folder in folders])
        return [f"{folder}.dvc" for folder in folders]

    def record(self, stages: Sequence[str]) -> None:
        """`dvc commit -f`: dvc.lock says that these stages were run and gave what lies there."""
        from dvc.repo import lock_repo

        with self._repo("record the champion") as repo, lock_repo(repo):
            for name in stages:
                stage = repo.stage.collect_granular(self._address(name))[0].stage
                # Without the run cache, which `dvc commit` would fill: it looks for dvc.yaml in the current folder.
                stage.save(run_cache=False)
                stage.commit()
                stage.dvcfile.dump_stages([stage], update_pipeline=False)

    def checkout(self) -> None:
        """The outs of dvc.yaml become what dvc.lock says; an out that it doesn't name is taken away.

        From the cache, and from the remote what the cache lacks: another clone may have released it.
        """
        with self._repo("check out the champion") as repo:
            stages = [stage for stage in repo.index.stages if stage.path_in_repo == PIPELINE]
            locked = [stage for stage in stages if all(out.hash_info for out in stage.outs)]
            for out in (out for stage in stages if stage not in locked for out in stage.outs):
                shutil.rmtree(out.fs_path, ignore_errors=True)
            if locked:
                repo.pull([self._address(stage.name) for stage in locked], force=True)

    def push(self, targets: Sequence[str]) -> None:
        """`dvc push` of stages or .dvc files, then look whether each object is in the remote, at its full size."""
        addresses = [self._address(target) for target in targets]
        with self._repo("push to the DVC remote") as repo:
            repo.push(targets=addresses)
            if _missing(repo, addresses):
                repo.drop_data_index()
                repo.push(targets=addresses)
            if missing := _missing(repo, addresses):
                raise RegistryError(
                    f"{len(missing)} objects are not in the DVC remote after the push (first: {missing[0]}): "
                    f"check the remote in .dvc/config and its free space, then run this again"
                )

    def download(self, artifact: str, version: str, out: Path) -> None:
        """Write that version of the artifact into `out`, from the cache or the remote."""
        import dvc.repo

        # Opened as from outside: a relative remote is then relative to this folder and not to the commit's root.
        with (
            refused("DVC", f"fetch {artifact}@{version}"),
            dvc.repo.Repo.open(str(self.root), subrepos=True, uninitialized=True) as repo,
        ):
            repo.artifacts.download(artifact, version=version, out=str(out), force=True)

    def _address(self, target: str) -> str:
        """A .dvc file as it is; a stage with its dvc.yaml, because DVC looks for a bare name in the current folder."""
        return target if target.endswith(".dvc") else f"{self.root / PIPELINE}:{target}"

    @contextmanager
    def _repo(self, what: str) -> Iterator[Any]:
        import dvc.repo

        _quiet()
        with refused("DVC", what), dvc.repo.Repo(str(self.root)) as repo:
            yield repo


def _quiet() -> None:
    """No greetings and hints of DVC's ("now run git add"): it prints them on stdout, where our JSON has to be alone."""
    logging.getLogger("dvc").setLevel(logging.WARNING)


def folder_sha256(folder: Path, leave_out: Sequence[str] = ()) -> str:
    """sha256 over the sorted names and contents of the files below: what the folder holds, not where it lies.

    `leave_out`: fnmatch patterns of file names that do not count.
    """
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not any(fnmatch(p.name, pat) for pat in leave_out))
    listing = [(path.relative_to(folder).as_posix(), file_sha256(path)) for path in files]
    return hashlib.sha256(canonical_json(listing).encode()).hexdigest()


@contextmanager
def refused(tool: str, what: str) -> Iterator[None]:
    """What DVC, GTO, their git or a remote's file system says no to becomes one of our sentences."""
    from dvc.exceptions import DvcException
    from dvc_data.index import DataIndexDirError
    from gto.exceptions import GTOException
    from scmrepo.exceptions import SCMError

    try:
        yield
    except (DvcException, DataIndexDirError, GTOException, SCMError, OSError) as error:
        raise RegistryError(f"{tool} could not {what}: {' '.join(str(error).split())}") from error


def _missing(repo: Any, targets: Sequence[str]) -> list[str]:
    """Object ids of the targets' outs that the remote doesn't hold, or holds at another size than the cache does."""
    cache, remote = repo.cache.local, repo.cloud.get_remote_odb()
    infos = [info for target in targets for info in repo.stage.collect_granular(target)]
    used = [ids for info in infos for out in info.stage.outs for ids in out.get_used_objs().values()]
    oids = sorted({hash_info.value for ids in used for hash_info in ids})
    return [oid for oid in oids if not (remote.exists(oid) and _size(remote, oid) == _size(cache, oid))]


def _size(odb: Any, oid: str) -> int:
    return int(odb.fs.info(odb.oid_to_path(oid))["size"])
