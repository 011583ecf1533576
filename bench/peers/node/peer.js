// A stock gRPC client: calls xds:///TARGET every 50 ms and prints which backend
// answered, or why none did, whenever that changes.
'use strict';

const grpc = require('@grpc/grpc-js');
require('@grpc/grpc-js-xds').register();

const client = new grpc.Client(`xds:///${process.argv[2]}`, grpc.credentials.createInsecure());
const bytes = (b) => b;
let last = '';

function say(text) {
  if (text !== last) {
    last = text;
    console.log(text);
  }
}

function call() {
  const deadline = new Date(Date.now() + 2000);
  const c = client.makeUnaryRequest('/grpc.health.v1.Health/Check', bytes, bytes, Buffer.alloc(0), new grpc.Metadata(), { deadline }, (err) => {
    say(err ? `error ${err.message}` : `backend ${c.getPeer()}`);
    setTimeout(call, 50);
  });
}

call();
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
