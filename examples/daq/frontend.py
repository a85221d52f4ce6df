#!/usr/bin/env python3
"""A front end for `kagiri daq`: COUNT sources that send SIZE bytes of each event to one builder.

usage: frontend.py ADDR:PORT GROUP:PORT RUN FIRST COUNT SIZE [BUILDERS]

ADDR:PORT, GROUP:PORT and RUN are printed by `kagiri daq --front-ends COUNT --listen ADDR:PORT`; GROUP:PORT may be `-`, then
orders come over TCP only. FIRST is the number of the first source. BUILDERS (1 unless given) is how many builders share the
events modulo their number, 0 if by another rule. The format is described in docs/daq-wire.md; the steps below are numbered as there.
"""

import random
import select
import socket
import struct
import sys
import time

TRIGGER, GRANT, PULL, STOP, HELLO, FRAGMENT, SYNC, NACK = range(1, 9)
ORDER = struct.Struct("!4sBBHIHHQQIIIIQII")  # magic version kind length run flags builder event triggered first count
FRAGMENT_HEADER = struct.Struct("!4sBBHIHHQIIQQIIII")  # ... event source payload_length received sent clock_error sequence crc crc
CATCHUP = 2
ANY_BUILDER = 65535  # its address is known, its number is not
EVENTS_MAX = 10_000  # no builder has more under way
IDLE_TIMEOUT_S = 60

CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def message(kind, run, builder, event, source, payload, payload_crc, received_ns, sequence=0, flags=0):
    """A header with its payload: step 3. The send time is read here, right before the write."""
    header = FRAGMENT_HEADER.pack(b"KGDQ", 1, kind, 64, run, flags, builder, event, source, len(payload), received_ns,
                      time.monotonic_ns(), 0, sequence, payload_crc, 0)[:60]
    return header + struct.pack("!I", crc32c(header)) + payload


def connect(builder_at):
    """The builder listens once its line is printed, and not between two trials of a search."""
    for tries in range(30):
        try:
            return socket.create_connection(builder_at, timeout=10)
        except ConnectionRefusedError:
            if tries == 29:
                raise
            time.sleep(0.1)


class Source:
    def __init__(self, number, connection):
        self.number, self.connection, self.bytes = number, connection, b""
        self.sent, self.oldest, self.sequence = set(), 0, 0


class FrontEnd:
    def __init__(self, builder_at, group_at, run, first, count, size, builders=1):
        self.builder_at, self.run, self.builders = builder_at, run, builders
        self.payload = bytes(number & 255 for number in range(size))
        self.payload_crc = crc32c(self.payload)
        self.is_known = False  # whether any order was of this run
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # step 1: the group's UDP port
        self.udp.bind(("", 0))
        self.udp_sockets = [self.udp]
        if group_at:  # step 2
            multicast = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            multicast.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            multicast.bind(group_at)
            self.udp_sockets.append(multicast)
        self.sources = {}
        group, boot = random.getrandbits(64) | 1, bytes(16)
        try:
            boot = bytes.fromhex(open("/proc/sys/kernel/random/boot_id").read().strip().replace("-", ""))
        except OSError:
            pass  # not Linux: the builder compares the clocks by probes
        hello = struct.pack("!Q16sHHIQ16s8x", group, boot, self.udp.getsockname()[1], 0, count, 0, b"")
        for number in range(first, first + count):
            connection = connect(builder_at)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sources[connection] = Source(number, connection)
        if group_at:  # on the interface that routes to the builder
            local = socket.inet_aton(connection.getsockname()[0])
            multicast.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group_at[0]) + local)
        for source in self.sources.values():  # step 4
            source.connection.sendall(message(HELLO, run, ANY_BUILDER, 0, source.number, hello, crc32c(hello), 0))

    def order(self, data, received_ns, only=None, reply=None):
        """Steps 5 to 9. Returns True at the end of the run."""
        magic, version, kind, _, run, _, builder, event, _, first, count, _, limit, oldest, _, crc = ORDER.unpack(data[:64])
        if magic != b"KGDQ" or version != 1 or run != self.run or crc32c(data[:60]) != crc:
            return False  # another run's, or corrupt
        self.is_known = True
        if kind == STOP:
            return True
        if kind == SYNC:
            one = next(iter(self.sources.values())).number
            reply(message(SYNC, run, builder, event, only.number if only else one, b"", 0, received_ns))
        if kind in (TRIGGER, GRANT, PULL) and oldest <= event < oldest + EVENTS_MAX * max(self.builders, 1):
            for source in [only] if only else self.sources.values():
                if oldest > source.oldest:  # orders may be reordered: forgotten events stay forgotten
                    source.oldest, source.sent = oldest, {sent for sent in source.sent if sent >= oldest}
                if not first <= source.number < first + count or event < source.oldest:
                    continue
                # A trigger without a limit of bytes in flight (push) reveals lost ones before it; other orders are for
                # their event alone.
                back_to = source.oldest if kind == TRIGGER and limit == 0 and self.builders else event
                for wanted in reversed(range(event, back_to - 1, -max(self.builders, 1))):
                    if wanted not in source.sent:
                        self.fragment(source, builder, wanted, received_ns, CATCHUP if wanted != event else 0)
        return False

    def fragment(self, source, builder, event, received_ns, flags):
        source.sent.add(event)
        source.connection.sendall(message(FRAGMENT, self.run, builder, event, source.number, self.payload,
                                        self.payload_crc, received_ns, source.sequence, flags))
        source.sequence += 1

    def receive(self, connection):
        """Reads a connection; empty at its end. The builder closes connections of another run without a message."""
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            if self.is_known:
                raise
            data = b""
        if not data and not self.is_known:
            raise ConnectionError("the builder closed the connection before any order: is RUN right?")
        return data

    def serve(self):
        """Step 10: until STOP, or until the builder closes the connection. Returns the number of fragments sent."""
        while True:
            ready, _, _ = select.select([*self.udp_sockets, *self.sources], [], [], IDLE_TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"the builder was silent for {IDLE_TIMEOUT_S} s")
            for ready_socket in ready:
                received_ns, source = time.monotonic_ns(), self.sources.get(ready_socket)
                if source is None:
                    data, sender = ready_socket.recvfrom(2048)
                    reply_to = sender if ready_socket is self.udp else self.builder_at  # a multicast group cannot be replied to
                    over = len(data) >= 64 and self.order(
                        data, received_ns, reply=lambda answer: self.udp.sendto(answer, reply_to))
                else:
                    data = self.receive(ready_socket)
                    source.bytes += data
                    over = not data
                    while len(source.bytes) >= 64 and not over:
                        if source.bytes[:5] != b"KGDQ\x01":
                            raise ValueError("the other end does not speak version 1 of this protocol")
                        length = max(64, int.from_bytes(source.bytes[6:8], "big"))
                        if len(source.bytes) < length:
                            break
                        over = self.order(source.bytes[:length], received_ns, source, ready_socket.sendall)
                        source.bytes = source.bytes[length:]
                if over:
                    return sum(source.sequence for source in self.sources.values())


def address(text):
    host, _, port = text.rpartition(":")
    return (host.strip("[]"), int(port))


if __name__ == "__main__":
    try:
        at, orders, *numbers = sys.argv[1:]
        at, orders, numbers = address(at), None if orders == "-" else address(orders), [int(n, 0) for n in numbers]
        if not 4 <= len(numbers) <= 5 or min(numbers) < 0 or numbers[2] < 1:
            raise ValueError
    except ValueError:
        sys.exit(__doc__.split("\n\n")[1])
    try:
        print(f"{FrontEnd(at, orders, *numbers).serve()} fragments sent")
    except (OSError, ValueError) as error:
        sys.exit(f"frontend: {sys.argv[1]}: {error}")
