"""The Kafka protocol: declarations of its messages, and the codecs that read and write them. No I/O."""

from ottla.wire.codec import decode, decode_versioned, encode, encode_chunks, encode_versioned
from ottla.wire.errors import ProtocolError, UnsupportedVersionError
from ottla.wire.registry import Api, all_messages, apis
from ottla.wire.schema import Data, Header, Message, Request, Response, Struct

__all__ = [
    "Api",
    "Data",
    "Header",
    "Message",
    "ProtocolError",
    "Request",
    "Response",
    "Struct",
    "UnsupportedVersionError",
    "all_messages",
    "apis",
    "decode",
    "decode_versioned",
    "encode",
    "encode_chunks",
    "encode_versioned",
]
