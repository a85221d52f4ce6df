#!/usr/bin/env python3
"""A program that states its class, size and target to a policy in force (kagiri qos run), and prints its rate.

usage: client.py HOST:PORT CLASS SIZE-BYTES TARGET-MS [SECONDS]

Sends one message of SIZE-BYTES a second to a server that reads them. Where no policy is in force, or it does not
permit the statement, the program says so and goes on. The library is libkagiri_qos.so of $KAGIRI_QOS_LIBRARY, or of
the loader's path.
"""

import ctypes
import os
import socket
import sys
import time

UNLIMITED = 2**64 - 1


class Report(ctypes.Structure):
    """struct kagiri_qos_report of kagiri_qos.h."""

    _fields_ = [(name, ctypes.c_uint64) for name in
                ("rate_bit_per_s", "need_bit_per_s", "size_bytes", "target_us", "messages", "in_time")]
    _fields_ += [("sockets", ctypes.c_uint32), ("paced", ctypes.c_uint32), ("class_name", ctypes.c_char * 257)]


class Client:
    """A connection to the policy in force; what was stated ends with it."""

    def __init__(self, deadline_ms=250):
        self.library = ctypes.CDLL(os.environ.get("KAGIRI_QOS_LIBRARY", "libkagiri_qos.so"))
        pointer, report = ctypes.c_void_p, ctypes.POINTER(Report)
        for name, result, arguments in (
                ("connect", pointer, [ctypes.c_uint]),
                ("state", ctypes.c_int, [pointer, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, report]),
                ("rate", ctypes.c_int, [pointer, report]),
                ("withdraw", ctypes.c_int, [pointer, report]),
                ("close", None, [pointer]),
                ("text", ctypes.c_char_p, [ctypes.c_int])):
            function = getattr(self.library, "kagiri_qos_" + name)
            function.restype, function.argtypes = result, arguments
        self.handle = self.library.kagiri_qos_connect(deadline_ms)

    def state(self, class_name=None, size_bytes=0, target_ms=0):
        report = Report()
        name = class_name.encode() if class_name else None
        code = self.library.kagiri_qos_state(self.handle, name, size_bytes, round(target_ms * 1000),
                                             ctypes.byref(report))
        return self.answer(code, report)

    def rate(self):
        report = Report()
        return self.answer(self.library.kagiri_qos_rate(self.handle, ctypes.byref(report)), report)

    def withdraw(self):
        report = Report()
        return self.answer(self.library.kagiri_qos_withdraw(self.handle, ctypes.byref(report)), report)

    def close(self):
        self.library.kagiri_qos_close(self.handle)
        self.handle = None

    def answer(self, code, report):
        """The report, and None or why there is none."""
        return report, None if code == 0 else self.library.kagiri_qos_text(code).decode()


def line(what, report, problem):
    if problem:
        return f"{what}: {problem}"
    rate = "unlimited" if report.rate_bit_per_s == UNLIMITED else f"{report.rate_bit_per_s / 1e6:.3f} Mbit/s"
    return (f"{what}: class {report.class_name.decode() or '-'}, {report.sockets} sockets, rate {rate}, "
            f"size {report.size_bytes}, target {report.target_us / 1000:g} ms, "
            f"in time {report.in_time} of {report.messages}")


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    host, port = sys.argv[1].rsplit(":", 1)
    class_name, size, target_ms = sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    end = time.monotonic() + float(sys.argv[5] if len(sys.argv) == 6 else 10)
    client = Client()
    connection = socket.create_connection((host, int(port)), timeout=10)
    print(line("stated", *client.state(class_name, size, target_ms)), flush=True)
    while time.monotonic() < end:
        connection.sendall(bytes(size))
        time.sleep(1)
        print(line("now", *client.rate()), flush=True)
    client.close()


if __name__ == "__main__":
    main()
