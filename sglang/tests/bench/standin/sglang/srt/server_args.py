import dataclasses


@dataclasses.dataclass
class ServerArgs:
    attention_backend: str = ""
    sampling_backend: str = ""
