"""The receiving end of `bestby::quic` in another QUIC stack (aioquic), and a sending one.

    aioquic_peer.py receive|send DIRECTORY_OF_CERTIFICATE

It is a server; it prints `port N`, and then what it gets, one line each:

    adu ID VERSION PRIORITY LEFT SHA256     a complete ADU (LEFT is - if it has none)
    reset CODE                              a stream that was reset
    notice ALIVE_FROM FIRST LAST            - if it names no ids
    end CODE                                the connection's end

`send` opens one stream for each kind of header, as written here and nowhere else.
"""

import asyncio
import hashlib
import pathlib
import sys

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    StreamDataReceived,
    StreamReset,
)
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_der_private_key


def say(*words):
    print(*words, flush=True)


def take(data, at):
    """The variable-length integer there, and where it ends (RFC 9000, section 16)."""
    length = 1 << (data[at] >> 6)
    value = int.from_bytes(data[at : at + length], "big") & ((1 << (8 * length - 2)) - 1)
    return value, at + length


def put(value):
    for bits, length in enumerate((1, 2, 4, 8)):
        if value < 1 << (8 * length - 2):
            return (value | bits << (8 * length - 2)).to_bytes(length, "big")
    raise ValueError(value)


def header(*fields, kind=0x0B):
    rest = b"".join(put(field) if isinstance(field, int) else field for field in fields)
    return put(kind) + put(len(rest)) + rest


def tell(data):
    """Says what a complete stream was."""
    kind, at = take(data, 0)
    length, at = take(data, at)
    end = at + length
    adu, at = take(data, at)
    version, at = take(data, at)
    behind, at = take(data, at)
    flags, at = take(data, at)
    left, gone = "-", ("-", "-")
    if flags & 8:
        left, at = take(data, at)
    if flags & 32:
        back, at = take(data, at)
        count, at = take(data, at)
        gone = (adu - back - count, adu - back - 1)
    assert kind == 0x0B and at == end and flags < 64, data[:32].hex()
    if flags & 16:
        assert len(data) == end
        say("notice", adu - behind, *gone)
    else:
        say("adu", adu, version, flags & 7, left, hashlib.sha256(data[end:]).hexdigest())


class Peer(QuicConnectionProtocol):
    sends = False
    ended = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.streams = {}

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted) and self.sends:
            self.send_all()
        elif isinstance(event, StreamDataReceived):
            data = self.streams.setdefault(event.stream_id, bytearray())
            data += event.data
            if event.end_stream:
                tell(bytes(self.streams.pop(event.stream_id)))
        elif isinstance(event, StreamReset):
            self.streams.pop(event.stream_id, None)
            say("reset", event.error_code)
        elif isinstance(event, ConnectionTerminated):
            say("end", event.error_code)
            self.ended.set()

    def send_all(self):
        streams = (
            header(0, 0, 0, 3) + b"plain",
            header(2, 1, 2, 8 | 5, 250) + b"version 1, priority 5, 250 ms",
            # 1 was given up.
            header(3, 0, 3, 32 | 3, 1, 1) + b"gone",
            # A flag of a later time, with what it brings.
            header(4, 0, 0, 64 | 3, b"later") + b"unknown flag",
            header(5, 0, 0, 3),
            header(70_000, 0, 0, 16),
            header(70_000, 0, 0, 3) + b"x" * 200_000,
        )
        for data in streams:
            stream = self._quic.get_next_available_stream_id(is_unidirectional=True)
            self._quic.send_stream_data(stream, data, end_stream=True)
        self.transmit()


async def main(mode, directory):
    Peer.sends = mode == "send"
    Peer.ended = asyncio.Event()
    configuration = QuicConfiguration(alpn_protocols=["bestby/1"], is_client=False)
    directory = pathlib.Path(directory)
    configuration.certificate = x509.load_der_x509_certificate(
        (directory / "cert.der").read_bytes()
    )
    configuration.private_key = load_der_private_key(
        (directory / "key.der").read_bytes(), password=None
    )
    server = await serve(
        "127.0.0.1", 0, configuration=configuration, create_protocol=Peer
    )
    say("port", server._transport.get_extra_info("sockname")[1])
    await Peer.ended.wait()
    server.close()


asyncio.run(main(*sys.argv[1:]))
