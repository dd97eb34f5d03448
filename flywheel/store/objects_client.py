"""S3, or any server that speaks it: the address, the client, and what its errors mean in a sentence.

Credentials, profile and region come by boto3's standard chain (environment, ~/.aws, container or instance role) and
nowhere else; none is ever part of an address or a sentence. The endpoint is the given one, else boto3's own chain
(AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, ~/.aws/config), else Amazon's. Throttling and 5xx are retried by botocore in its
`standard` mode, `ATTEMPTS` times unless AWS_MAX_ATTEMPTS or the profile says otherwise.

Other endpoints than Amazon's are addressed by path and without trailing checksums, which many of them don't know,
unless the profile has an `addressing_style`.

Not covered: what is done with the client (`objects_s3.py`, the lake), buckets of S3 Express.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flywheel.errors import ConfigError, ObjectError, ObjectGone, ObjectUnread

if TYPE_CHECKING:
    from botocore.config import Config as ClientConfig
    from botocore.session import Session

SCHEME = "s3://"
ATTEMPTS = 6  # with pauses of 1, 2, 4, 8 and 16 s at most in between
CONNECT_SECONDS, READ_SECONDS = 10, 60
CONNECTIONS = 32
REPLACED = ("PreconditionFailed", "412")
_GONE = ("NoSuchKey", "404")
_ONE_OBJECT = {  # refusals that concern this object alone
    "InvalidObjectState": "it is archived: restore it first",
    "AccessDenied": "these credentials may not read it: grant s3:GetObject (and the use of its KMS key)",
    "403": "these credentials may not read it: grant s3:GetObject (and the use of its KMS key)",
}
_ALL = {
    "NoSuchBucket": "there is no such bucket: create it, or correct the address",
    "AccessDenied": "these credentials may not do this: grant s3:ListBucket, s3:GetObject and s3:PutObject",
    "InvalidAccessKeyId": "the server does not know this access key: see AWS_ACCESS_KEY_ID or AWS_PROFILE",
    "SignatureDoesNotMatch": "the secret key is wrong: see AWS_SECRET_ACCESS_KEY or AWS_PROFILE",
    "ExpiredToken": "the session token has expired: log in again",
    "SlowDown": "the server throttles: try later, or less at a time",
}


def is_s3(path: object) -> bool:
    """Whether it's the address of objects on S3 rather than a path."""
    return str(path).startswith(SCHEME)


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket, a prefix in it (as typed, possibly empty), and the endpoint if it isn't the default one."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""

    @classmethod
    def parse(cls, url: str, endpoint: str = "") -> S3Place:
        """`s3://bucket/prefix`. Errors: ConfigError for anything else, and for credentials in the endpoint."""
        bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
        if not url.startswith(SCHEME) or not bucket or "@" in bucket or ":" in bucket:
            raise ConfigError(f"{url!r} is no address of objects: write s3://bucket/prefix")
        parts = urlsplit(endpoint)
        if parts.username or parts.password:
            raise ConfigError("an endpoint holds no credentials: give them as AWS_ACCESS_KEY_ID or AWS_PROFILE")
        if endpoint and (parts.scheme not in ("http", "https") or not parts.netloc):
            raise ConfigError(f"{endpoint!r} is no endpoint: write http://host:port or https://host")
        return cls(bucket, prefix, endpoint)

    def url(self, key: str | None = None) -> str:
        """The address of an object of this bucket, or of the place itself."""
        return f"{SCHEME}{self.bucket}/{self.prefix if key is None else key}"

    def client(self) -> Any:
        """A boto3 client for this endpoint; threads may share it. Errors: ObjectError."""
        import boto3
        import botocore.session
        from botocore.exceptions import BotoCoreError

        try:
            chain = botocore.session.get_session()
            session = boto3.Session(botocore_session=chain)
            settings = chain.get_scoped_config().get("s3", {})
            client = session.client("s3", endpoint_url=self.endpoint or None, config=_config(chain))
            if _is_amazon(client.meta.endpoint_url) or "addressing_style" in settings:
                return client
            return session.client("s3", endpoint_url=client.meta.endpoint_url, config=_config(chain, other=True))
        except (BotoCoreError, ValueError) as error:
            raise ObjectError(
                f"{self.url()}: {type(error).__name__}: {error}; correct the AWS configuration"
            ) from error


def _config(session: Session, other: bool = False) -> ClientConfig:
    """The client's configuration where neither environment nor profile says anything. `other`: not Amazon's server."""
    from botocore.config import Config

    keys: dict[str, Any] = {
        "user_agent_extra": "flywheel",
        "max_pool_connections": CONNECTIONS,
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": READ_SECONDS,
    }
    retries: dict[str, Any] = {}
    if session.get_config_variable("retry_mode") in (None, "legacy"):
        retries["mode"] = "standard"
    if session.get_config_variable("max_attempts") is None:
        retries["total_max_attempts"] = ATTEMPTS
    if retries:
        keys["retries"] = retries
    if session.get_config_variable("region") is None:
        keys["region_name"] = "us-east-1"
    if other:
        keys["s3"] = {"addressing_style": "path"}
        keys["request_checksum_calculation"] = "when_required"
    return Config(**keys)


def _is_amazon(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def code_of(error: BaseException) -> str:
    """The S3 error code of a ClientError, else ''."""
    answer = getattr(error, "response", None)
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def is_servers_fault(error: BaseException) -> bool:
    """Whether the server says itself that it can't just now, as one does that is starting up (5xx)."""
    answer = getattr(error, "response", None)
    return isinstance(answer, dict) and answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500


def explained(error: Exception, place: S3Place, key: str | None = None) -> ObjectError:
    """The error in a sentence with its remedy. Nothing of botocore's text, which may quote what was sent."""
    url, code = place.url(key), code_of(error)
    if key is not None and code in _GONE:
        return ObjectGone(f"{url} was deleted after it was listed; it is left out")
    if key is not None and code in _ONE_OBJECT:
        return ObjectUnread(f"{url} can't be read ({code}): {_ONE_OBJECT[code]}")
    if code in _ALL:
        return ObjectError(f"{url}: {_ALL[code]} ({code})")
    if is_servers_fault(error):
        return ObjectError(f"{url}: the server answered {code}, also when asked again; try later, nothing was staged")
    if code:
        return ObjectError(f"{url}: the server refuses ({code}); check the address, the credentials and the region")
    name = type(error).__name__
    if "Credential" in name or "Profile" in name or "Token" in name or "SSO" in name:
        return ObjectError(
            f"{url}: no usable credentials ({name}): set AWS_ACCESS_KEY_ID and its secret, or AWS_PROFILE"
        )
    where = place.endpoint or "the endpoint (AWS_ENDPOINT_URL_S3)"
    return ObjectError(f"{url}: {where} can't be reached or broke off ({name}); nothing was staged, try again later")
