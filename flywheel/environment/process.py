"""Run one program to its end or to a limit, on Linux: what level 0 of the sandbox is made of. It is not a boundary.

Holds wall time (the whole process group is killed), and of each process CPU time, address space, file size, open files
and core dumps; reads what is printed without ever waiting for a pipe to close. What that leaves open is listed in
`sandbox.py`. If this process is itself killed, the program goes on until its CPU limit.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from flywheel.errors import SandboxError

Ended = Literal["exit", "wall", "cpu", "file_size", "signal"]
# The shell waits for a line on stdin, which comes when the limits are set, and then becomes the program. That needs
# no code between fork and exec in this process, which may have threads (preexec_fn can deadlock there).
_GATE = 'read _ && exec "$@" </dev/null'
_POLL_S = 0.005
_CHUNK = 65536
_PIPE_CHUNKS = 16  # a pipe holds 1 MiB at most; what a daemon writes after the end of the run is not waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one run. All but `wall_s` and `output_bytes` hold for each process by itself."""

    wall_s: float = 30.0
    cpu_s: int = 30
    memory_bytes: int = 4 << 30  # address space
    file_bytes: int = 64 << 20
    open_files: int = 256
    processes: int = 64  # beside those the user runs already; root is not held to it
    output_bytes: int = 1 << 20  # kept of stdout and of stderr; the rest is read and dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one run ended. A program that fails, or runs into a limit, is a result; SandboxError is the sandbox's own."""

    returncode: int  # negative: the signal that ended it; 126 and 127: it could not be run, or there is none
    ended: Ended
    stdout: bytes
    stderr: bytes
    dropped: int  # bytes of output beyond the limit
    seconds: float


def run_limited(argv: Sequence[str], cwd: Path, env: Mapping[str, str], limits: Limits) -> Result:
    """Run `argv` in `cwd` with exactly `env`, and leave no process of its group behind.

    Errors: ValueError for an argv that no system could run; SandboxError if the process or its limits can't be had.
    """
    if not argv or any("\0" in part for part in argv):
        raise ValueError(f"argv must name a program and hold no NUL: {list(argv)!r}")
    started = time.monotonic()
    process = _start(argv, cwd, env)
    output = _Output(process, limits.output_bytes)
    try:
        _limit(process.pid, limits)
        _let_go(process)
        timed_out = output.collect(started + limits.wall_s)
    finally:
        # The leader is not reaped yet, so the group's id can't belong to anybody else.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.finish()
    return Result(
        returncode=process.returncode,
        ended=_ended(process.returncode, timed_out),
        stdout=bytes(output.kept[0]),
        stderr=bytes(output.kept[1]),
        dropped=output.dropped,
        seconds=time.monotonic() - started,
    )


def _start(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "sh", *argv],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"the sandbox could not start a process: {error}") from error


class _Output:
    """Reads both pipes of a process as it runs, keeps the head of each and counts the rest."""

    def __init__(self, process: subprocess.Popen[bytes], limit: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._limit = process, limit
        self._pipes: tuple[IO[bytes], IO[bytes]] = (process.stdout, process.stderr)
        self._selector = selectors.DefaultSelector()
        self.kept = (bytearray(), bytearray())
        self.dropped = 0
        for index, pipe in enumerate(self._pipes):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, index)

    def collect(self, deadline: float) -> bool:
        """Read until the process has ended (False) or the deadline is past (True). Does not reap it."""
        while os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() >= deadline:
                return True
            for key, _ in self._selector.select(_POLL_S):
                if self._read(key.data) == b"":
                    self._selector.unregister(key.fileobj)
        return False

    def finish(self) -> None:
        """Take what the pipes still hold and close them, though a daemon may hold the other end."""
        for index, pipe in enumerate(self._pipes):
            for _ in range(_PIPE_CHUNKS):
                if not self._read(index):
                    break
            pipe.close()
        self._selector.close()

    def _read(self, index: int) -> bytes | None:
        """The next bytes, b"" at the end, None if there are none now."""
        try:
            data = os.read(self._pipes[index].fileno(), _CHUNK)
        except BlockingIOError:
            return None
        room = max(0, self._limit - len(self.kept[index]))
        self.kept[index].extend(data[:room])
        self.dropped += len(data[room:])
        return data


def _limit(pid: int, limits: Limits) -> None:
    """Set the limits of the waiting process. A limit above this process's own hard limit is lowered to it."""
    wanted = {
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: limits.processes + _threads_of_user(),
        resource.RLIMIT_CORE: 0,
    }
    try:
        for kind, value in wanted.items():
            hard = resource.prlimit(pid, kind)[1]
            soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # SIGXCPU at the soft limit can be caught, SIGKILL a second later can't.
            grace = 1 if kind == resource.RLIMIT_CPU and soft != hard else 0
            resource.prlimit(pid, kind, (soft, soft + grace))
    except (OSError, ValueError) as error:
        raise SandboxError(f"the sandbox could not set its limits on process {pid}: {error}") from error


def _threads_of_user() -> int:
    """How many tasks this user runs now: the kernel counts all of them against the limit on processes."""
    count, me = 0, os.getuid()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == me:
                count += sum(1 for _ in (folder / "task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
    return count


def _let_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(b"\n")
        process.stdin.close()
    except BrokenPipeError as error:
        raise SandboxError(f"the process {process.pid} died before it could run its program") from error


def _ended(returncode: int, timed_out: bool) -> Ended:
    if timed_out:
        return "wall"
    by_signal: dict[int, Ended] = {-signal.SIGXCPU: "cpu", -signal.SIGXFSZ: "file_size"}
    return by_signal.get(returncode, "signal" if returncode < 0 else "exit")
