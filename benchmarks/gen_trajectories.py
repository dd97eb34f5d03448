#!/usr/bin/env python3
"""Deterministic generator of realistic LLM-agent failure trajectories (JSONL).

One trajectory per line, 5-50 steps, ~4-200 KB.  Text is sliced from the python stdlib and the
site-packages of the running interpreter (source, docs, licences), so that it compresses like real
text.  Tool-call arguments are heterogeneous on purpose (the same key has different types).
PII/secrets are planted; the truth goes to OUT.truth.jsonl {id, step, kind, value}.

  gen_trajectories.py --out data/traj_500.jsonl --mb 500 --seed 7
"""

from __future__ import annotations

import argparse
import base64
import glob
import hashlib
import json
import os
import random
import string
import sysconfig
from pathlib import Path

import orjson

TOOLS = [
    "bash",
    "read_file",
    "edit_file",
    "search",
    "http_request",
    "sql_query",
    "python",
    "browser_click",
    "send_email",
    "create_ticket",
    "list_dir",
    "grep",
    "calendar",
    "kubectl",
]
TOOL_W = [30, 18, 14, 8, 6, 5, 7, 4, 2, 1, 2, 2, 0.5, 0.5]
FAIL = [
    "tool_error",
    "timeout",
    "wrong_answer",
    "loop",
    "context_overflow",
    "hallucinated_tool",
    "premature_stop",
    "permission_denied",
    "schema_violation",
    "refusal",
]
MODELS = ["acme-7b-instruct", "acme-32b-agent", "qwx-14b", "lmx-70b-tool"]
SOURCES = ["prod-eu", "prod-us", "staging", "canary"]
UNI = ["naïve café – déjà vu", "日本語のログ出力", "Ошибка соединения", "✅ done 🚀", "größer als ß", "错误:文件不存在"]


STDLIB_ONLY = False


def text_pool(limit: int = 60 << 20) -> tuple[list[str], list[str], str]:
    """(code chunks source, prose source, sha256) - files in sorted order, deterministic for an env."""
    roots = [sysconfig.get_paths()["stdlib"]] + ([] if STDLIB_ONLY else [sysconfig.get_paths()["purelib"]])
    code, prose, h, n = [], [], hashlib.sha256(), 0
    for r in roots:
        found = [(os.path.relpath(path, r), path) for path in glob.glob(r + "/**/*", recursive=True)]  # noqa: PTH207
        for name, p in sorted(found, key=lambda pair: hashlib.md5(pair[0].encode()).digest()):  # mixed, but always so
            if "-packages/" in name:
                continue
            ext = Path(p).suffix.lower()
            if ext not in (".py", ".pyi", ".rst", ".md", ".txt", ".h", ".pyx") or not Path(p).is_file():
                continue
            if "/test" in p and ext != ".py":
                continue
            try:
                t = Path(p).read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                continue
            if len(t) < 400 or len(t) > 2 << 20:
                continue
            h.update(t.encode())
            (code if ext in (".py", ".pyi", ".h", ".pyx") else prose).append(t)
            if ext == ".py":  # docstrings serve as prose
                parts = t.split('"""')
                prose.extend(x for x in parts[1::2] if len(x) > 300)
            n += len(t)
            if n > limit:
                return code, prose, h.hexdigest()
    return code, prose, h.hexdigest()


class Gen:
    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.code, self.prose, self.pool_sha = text_pool()
        self.cw = [len(t) for t in self.code]
        self.ccum, self.pcum = [], []
        s = 0
        for t in self.code:
            s += len(t)
            self.ccum.append(s)
        s = 0
        for t in self.prose:
            s += len(t)
            self.pcum.append(s)
        r = self.r
        self.systems = [self.slice("p", r.randint(900, 3000)) for _ in range(12)]
        self.tasks = [(f"task-{i:05d}", self.slice("p", r.randint(200, 1500))) for i in range(2500)]
        self.truth: list[dict] = []

    def slice(self, kind: str, n: int) -> str:
        r = self.r
        pool, cum = (self.code, self.ccum) if kind == "c" else (self.prose, self.pcum)
        import bisect

        out, need = [], n
        while need > 0:
            x = r.random() * cum[-1]
            i = bisect.bisect_left(cum, x)
            t = pool[i]
            a = r.randrange(0, max(1, len(t) - need)) if len(t) > need else 0
            nl = t.find("\n", a)
            a = nl + 1 if 0 <= nl < a + 120 else a
            s = t[a : a + need]
            if not s:
                continue
            out.append(s)
            need -= len(s)
        return "".join(out)

    # ---- PII / secrets -------------------------------------------------------------------------
    def luhn(self, prefix: str, n: int) -> str:
        r = self.r
        d = [int(c) for c in prefix] + [r.randrange(10) for _ in range(n - len(prefix) - 1)]
        s = 0
        for i, x in enumerate(reversed(d)):
            if i % 2 == 0:
                x *= 2
                if x > 9:
                    x -= 9
            s += x
        return "".join(map(str, d)) + str((10 - s % 10) % 10)

    def alnum(self, n: int, a: str = string.ascii_letters + string.digits) -> str:
        return "".join(self.r.choices(a, k=n))

    def pii(self) -> tuple[str, str]:
        r = self.r

        def b64(n: int) -> str:
            return base64.urlsafe_b64encode(r.randbytes(n)).decode().rstrip("=")

        k = r.randrange(13)
        if k == 0:
            return (
                "email",
                f"{r.choice(['jane', 'li.wei', 'o.martin', 'sven_k', 'priya'])}{r.randrange(999)}@{r.choice(['corp-mail.io', 'example.org', 'uni.edu', 'firma.de'])}",  # noqa: E501
            )
        if k == 1:
            return "phone", f"+1 ({r.randint(201, 989)}) {r.randint(200, 999)}-{r.randint(1000, 9999)}"
        if k == 2:
            return "aws_key", "AKIA" + self.alnum(16, string.ascii_uppercase + "234567")
        if k == 3:
            hd = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
            pl = (
                base64.urlsafe_b64encode(
                    orjson.dumps({"sub": str(r.randrange(10**9)), "iat": 1700000000 + r.randrange(10**7)})
                )
                .decode()
                .rstrip("=")
            )
            return "jwt", f"{hd}.{pl}.{b64(32)}"
        if k == 4:
            return "ipv4", f"{r.randint(11, 223)}.{r.randrange(256)}.{r.randrange(256)}.{r.randint(1, 254)}"
        if k == 5:
            return "credit_card", self.luhn(r.choice(["4", "51", "37"]), 16) if r.random() < 0.9 else self.luhn(
                "37", 15
            )
        if k == 6:
            return "github_token", "ghp_" + self.alnum(36)
        if k == 7:
            return "slack_token", f"xoxb-{r.randrange(10**11, 10**12)}-{r.randrange(10**11, 10**12)}-{self.alnum(24)}"
        if k == 8:
            return "private_key", "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join(
                base64.b64encode(r.randbytes(48)).decode() for _ in range(12)
            ) + "\n-----END RSA PRIVATE KEY-----"
        if k == 9:
            return "generic_api_key", f'api_key = "{self.alnum(32, "0123456789abcdef")}"'
        if k == 10:
            return "iban", f"DE{r.randint(10, 99)}" + self.alnum(18, string.digits)
        if k == 11:
            return "ssn", f"{r.randint(100, 665)}-{r.randint(10, 99)}-{r.randint(1000, 9999)}"
        return "db_url", f"postgres://svc_{r.randrange(99)}:{self.alnum(14)}@db{r.randrange(9)}.internal:5432/app"

    def maybe_pii(self, s: str, tid: str, step: int, p: float) -> str:
        r = self.r
        if r.random() >= p:
            return s
        kind, v = self.pii()
        a = r.randrange(len(s) + 1) if s else 0
        nl = s.find("\n", a)
        a = nl + 1 if nl >= 0 else len(s)
        self.truth.append({"id": tid, "step": step, "kind": kind, "value": v})
        ctx = {
            "email": "contact: ",
            "ipv4": "host ",
            "ssn": "ssn: ",
            "phone": "tel ",
            "credit_card": "card ",
            "iban": "iban ",
        }.get(kind, "token ")
        return f"{s[:a]}{ctx}{v}\n{s[a:]}"

    # ---- tool calls ----------------------------------------------------------------------------
    def path(self) -> str:
        r = self.r
        return (
            "/".join(
                r.choices(
                    ["src", "app", "lib", "tests", "core", "api", "utils", "data", "conf", "v1"], k=r.randint(2, 5)
                )
            )
            + f"/{r.choice(['main', 'client', 'model', 'views', 'io', 'parse', 'sched'])}_{r.randrange(400)}.{r.choice(['py', 'py', 'py', 'ts', 'json', 'yaml', 'sql'])}"  # noqa: E501
        )

    def args(self, name: str):
        r = self.r
        if name == "bash":
            return {
                "command": f"cd {self.path()} && {r.choice(['pytest -q', 'grep -rn', 'sed -n 1,80p', 'git diff', 'ls -la'])} {self.path()}",  # noqa: E501
                "timeout": r.choice([30, 60, "120s", None]),
            }
        if name == "read_file":
            return {
                "path": self.path(),
                "start_line": r.randrange(500),
                "end_line": r.choice([None, r.randrange(500, 900)]),
            }
        if name == "edit_file":
            o = self.slice("c", r.randint(60, 900))
            return {
                "path": self.path(),
                "old_str": o,
                "new_str": o.replace("self", "cls")[: r.randint(30, 900)] + self.slice("c", r.randint(20, 500)),
            }
        if name == "search":
            return {
                "query": self.slice("p", 60).replace("\n", " "),
                "filters": {
                    "lang": r.choice(["py", "ts", ["py", "ts"]]),
                    "max": r.randrange(50),
                    "date": {"from": "2025-01-01", "to": None},
                },
            }
        if name == "http_request":
            return {
                "url": f"https://api.svc{r.randrange(40)}.local/v2/items/{r.randrange(10**6)}",
                "method": r.choice(["GET", "POST"]),
                "headers": {"Accept": "application/json", f"X-Req-{r.randrange(9)}": self.alnum(12)},
                "body": r.choice([None, {"id": r.randrange(99), "tags": ["a", "b"]}, "raw=1", [1, 2.5, "x"]]),
            }
        if name == "sql_query":
            return {
                "sql": f"SELECT * FROM t{r.randrange(20)} WHERE id IN ({', '.join(str(r.randrange(10**5)) for _ in range(r.randint(1, 12)))})",  # noqa: E501
                "params": r.choice([[], {"limit": 10}, [1, "two", 3.0]]),
            }
        if name == "python":
            return {"code": self.slice("c", r.randint(100, 1500)), "env": {f"VAR_{r.randrange(30)}": str(r.random())}}
        if name == "browser_click":
            return {
                "x": r.randrange(1900),
                "y": r.random() * 1000,
                "selector": r.choice(["#ok", ".btn > a", None]),
                "modifiers": r.choice([[], ["ctrl"]]),
            }
        if name == "send_email":
            return {
                "to": [f"u{r.randrange(99)}@example.org"],
                "subject": self.slice("p", 40),
                "body": self.slice("p", r.randint(100, 600)),
                "cc": r.choice([None, "x@example.org", ["y@example.org"]]),
            }
        return {
            "arg": r.choice([1, "s", True, None, {"k": [1, {"z": 2}]}]),
            "target": self.path(),
            "opts": {self.alnum(4, string.ascii_lowercase): r.random()},
        }

    def trajectory(self, i: int) -> dict:
        r = self.r
        tid = f"{r.getrandbits(64):016x}{i:08x}"
        task, prompt = self.tasks[
            min(int(r.paretovariate(0.7)) - 1, len(self.tasks) - 1)
            if r.random() < 0.5
            else r.randrange(len(self.tasks))
        ]
        n = max(5, min(50, int(r.lognormvariate(2.65, 0.55))))
        t0 = 1735689600_000 + r.randrange(180 * 86400_000)
        fail = r.choices(FAIL, weights=[20, 12, 25, 8, 5, 4, 9, 5, 7, 5])[0] if r.random() < 0.8 else None
        steps, t = [], t0
        steps.append({"index": 0, "role": "system", "ts": t, "content": self.systems[r.randrange(12)]})
        steps.append({"index": 1, "role": "user", "ts": t + 5, "content": self.maybe_pii(prompt, tid, 1, 0.08)})
        scale = r.lognormvariate(0, 0.45)
        for k in range(2, n):
            lat = int(r.lognormvariate(7.3, 0.9))
            t += lat
            if k % 2 == 0:
                name = r.choices(TOOLS, weights=TOOL_W)[0]
                if fail == "hallucinated_tool" and k == n - 2:
                    name = "magic_" + name
                txt = self.slice("p", min(4000, int(r.lognormvariate(5.9, 0.8) * scale)))
                if r.random() < 0.02:
                    txt = r.choice(UNI) + txt
                calls = [{"id": f"call_{self.alnum(16)}", "name": name, "arguments": self.args(name)}]
                if r.random() < 0.08:
                    calls.append({"id": f"call_{self.alnum(16)}", "name": "grep", "arguments": self.args("grep")})
                s = {
                    "index": k,
                    "role": "assistant",
                    "ts": t,
                    "content": txt,
                    "tool_calls": calls,
                    "tokens_in": 800 + r.randrange(30000),
                    "tokens_out": len(txt) // 4,
                    "latency_ms": lat,
                    "logprob_mean": round(-r.random(), 5),
                }
                if r.random() < 0.3:
                    s["reasoning"] = self.slice("p", min(6000, int(r.lognormvariate(6.2, 0.7) * scale)))
            else:
                code = r.choices([0, 1, 2, 124, 127], weights=[80, 12, 3, 3, 2])[0]
                obs = self.slice("c", min(24000, int(r.lognormvariate(7.15, 1.05) * scale)))
                if r.random() < 0.05:
                    obs = "\x1b[31mERROR\x1b[0m " + obs
                if code:
                    obs += f'\nTraceback (most recent call last):\n  File "{self.path()}", line {r.randrange(900)}, in run\nValueError: {self.alnum(8)}\n'  # noqa: E501
                s = {
                    "index": k,
                    "role": "tool",
                    "ts": t,
                    "content": self.maybe_pii(obs, tid, k, 0.05),
                    "tool_call_id": steps[-1].get("tool_calls", [{}])[0].get("id"),
                    "exit_code": code,
                    "truncated": len(obs) > 15000,
                    "latency_ms": lat,
                }
                if code:
                    s["error"] = {
                        "type": r.choice(["ValueError", "TimeoutError", "KeyError", "OSError"]),
                        "message": self.slice("p", 80),
                    }
            steps.append(s)
        return {
            "trajectory_id": tid,
            "task_id": task,
            "source": r.choice(SOURCES),
            "schema_version": r.choice([1, 1, 1, 2]),
            "agent": {
                "name": f"agent-{r.randrange(6)}",
                "version": f"1.{r.randrange(20)}.0",
                "model": r.choice(MODELS),
                "params": {"temperature": r.choice([0, 0.7, 1.0]), "max_tokens": 4096},
            },
            "started_at": t0,
            "ended_at": t,
            "outcome": "failure" if fail else "success",
            "reward": 0.0 if fail else 1.0,
            "failure": {"category": fail, "message": self.slice("p", 120)} if fail else None,
            "tags": r.sample(["nightly", "swe", "web", "sql", "tool-use", "long"], r.randint(0, 3)),
            "usage": {
                "tokens_in": 10000 + r.randrange(200000),
                "tokens_out": r.randrange(20000),
                "cost_usd": round(r.random(), 6),
            },
            "metadata": {
                f"k{r.randrange(40)}": r.choice([1, "v", 2.5, None, [1, 2], {"a": {"b": 1}}])
                for _ in range(r.randint(0, 4))
            },
            "steps": steps,
        }


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--mb", type=float, default=500)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument(
        "--stdlib-only",
        action="store_true",
        help="pool from the python stdlib only: same bytes for the same python build",
    )
    a = ap.parse_args()
    global STDLIB_ONLY
    STDLIB_ONLY = a.stdlib_only
    g = Gen(a.seed)
    goal, n, i = int(a.mb * 1e6), 0, 0
    sizes = []
    with Path(a.out).open("wb") as f, Path(a.out + ".truth.jsonl").open("wb") as tr:
        while n < goal:
            d = g.trajectory(i)
            # 10 % of the producers escape non-ASCII
            b = json.dumps(d).encode() if i % 10 == 0 else orjson.dumps(d)
            f.write(b)
            f.write(b"\n")
            n += len(b) + 1
            i += 1
            sizes.append(len(b))
            for t in g.truth:
                tr.write(orjson.dumps(t))
                tr.write(b"\n")
            g.truth.clear()
    sizes.sort()
    h = hashlib.sha256()
    with Path(a.out).open("rb") as f:
        while b := f.read(1 << 20):
            h.update(b)
    m = {
        "rows": i,
        "bytes": n,
        "seed": a.seed,
        "pool_sha256": g.pool_sha,
        "sha256": h.hexdigest(),
        "size_p5": sizes[i // 20],
        "size_p50": sizes[i // 2],
        "size_p95": sizes[i * 19 // 20],
        "size_max": sizes[-1],
    }
    Path(a.out + ".manifest.json").write_text(json.dumps(m, indent=1))
    print(json.dumps(m))


if __name__ == "__main__":
    main()
