"""moto's S3 server at port 9000, with the bucket that the stack writes to."""

import time
import urllib.request

from moto.server import ThreadedMotoServer

ThreadedMotoServer(ip_address="0.0.0.0", port=9000).start()  # returns when it listens
urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:9000/paceline", method="PUT"), timeout=10)
while True:
    time.sleep(3600)
