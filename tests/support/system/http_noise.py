"""Requests that are none, to a port of this machine or to a Unix socket, always the same ones: http_noise.py WHERE."""
import random
import socket
import sys

where = sys.argv[1]
draw = random.Random(1)
parts = [b"GET ", b"POST ", b"/metrics", b"/" * 9000, b" HTTP/1.1\r\n", b" HTTP/9.9\r\n", b"\r\n", b"Host: x\r\n", b"\0\xff\n",
         b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
         b"A: " + b"b" * 70000 + b"\r\n", b"Connection: keep-alive\r\n\r\n"]
for _ in range(60):
    request = b"".join(draw.choice(parts) for _ in range(draw.randrange(1, 8))) + draw.randbytes(draw.randrange(64))
    with socket.socket(socket.AF_UNIX if "/" in where else socket.AF_INET) as client:
        client.connect(where if "/" in where else ("127.0.0.1", int(where)))
        try:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has heard enough
