"""One HTTP request to a port of this machine or to a Unix socket: http_get.py WHERE PATH [METHOD]. Prints status and type,
then the body."""
import http.client
import socket
import sys

where, path = sys.argv[1:3]


class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(where)


connection = Local("gemmd") if "/" in where else http.client.HTTPConnection("127.0.0.1", int(where))
connection.request(sys.argv[3] if len(sys.argv) > 3 else "GET", path)
reply = connection.getresponse()
print(reply.status, reply.getheader("Content-Type"))
sys.stdout.write(reply.read().decode())
