"""The one tree of errors. Each message says what happened, why, and what to do.

RunnerError
├── SettingsError            a setting is wrong
├── RequestInvalid           a field of a request is wrong (HTTP 400)
│   ├── ContextOverflow      the prompt is longer than the model's context
│   └── TemplateFailed       the model's chat template refuses these messages
├── ModelNotFound            no such model here (HTTP 404)
├── ModelInvalid             a file is malformed, truncated or incomplete
├── DoesNotFit               not enough memory
├── RuntimeUnavailable       the library for this kind of file is not installed
├── EngineFailed             a worker process died or could not start
├── EngineBusy               the queue is full (HTTP 503, try again)
├── ServerUnreachable        no server at the given address
├── AgentMissing             a coding agent is not installed
├── ContextTooSmall          a coding agent needs more context than the model has here
└── HubError                 a download did not succeed
    ├── RepoNotFound · Unauthorized · GatedRepo
    ├── HubUnreachable · ChecksumMismatch · FilesMissing · DiskFull
"""


class RunnerError(Exception):
    """Base of every error that a person or a client is shown."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SettingsError(RunnerError):
    """A setting has a value that cannot be used."""


class RequestInvalid(RunnerError):
    """A request cannot be served as it stands; `param` names the field."""

    code = "invalid_value"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextOverflow(RequestInvalid):
    """The prompt does not fit the model's context. Both numbers are in tokens."""

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, limit: int, *, at_least: bool = False) -> None:
        count = f"at least {prompt_tokens}" if at_least else f"{prompt_tokens}"
        super().__init__(
            f"This model's maximum context length is {limit} tokens, but the prompt has "
            f"{count} tokens. Shorten the prompt or serve the model with a larger --ctx.",
            "messages",
        )
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class TemplateFailed(RequestInvalid):
    """The model's chat template cannot render these messages."""

    code = "template_error"


class ModelNotFound(RunnerError):
    """No model of this name is here."""


class ModelInvalid(RunnerError):
    """A model file is malformed, truncated or incomplete."""


class DoesNotFit(RunnerError):
    """The model or the asked context needs more memory than there is."""


class RuntimeUnavailable(RunnerError):
    """The library that runs this kind of model is not installed here."""


class EngineFailed(RunnerError):
    """The process that runs a model ended or could not start."""


class EngineBusy(RunnerError):
    """Too many requests wait already; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ServerUnreachable(RunnerError):
    """No server answers at the given address."""


class AgentMissing(RunnerError):
    """The program of a coding agent is not on the path."""


class ContextTooSmall(RunnerError):
    """A coding agent needs more context than the model has here."""


class HubError(RunnerError):
    """A download did not succeed."""


class RepoNotFound(HubError):
    """The repository or file does not exist, or is private."""


class Unauthorized(HubError):
    """The hub wants a token."""


class GatedRepo(HubError):
    """The repository's terms have not been accepted."""


class HubUnreachable(HubError):
    """The hub, or the proxy before it, does not answer."""


class ChecksumMismatch(HubError):
    """The bytes that came are not the bytes the hub announced."""


class FilesMissing(HubError):
    """A model of several files is not complete on the hub."""


class DiskFull(HubError):
    """The disk has no room for the download."""
