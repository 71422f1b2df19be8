// A client of infeed in JavaScript, written from docs/architecture.md and proto/ alone.
//
//   node client.cjs PROTO_FOLDER PIPELINE EPOCHS TOKEN ADDRESS [ADDRESS ...]
//
// Reads one rank's batches, with the remainder padded, and prints a line of JSON for each. Needs
// @grpc/grpc-js and @grpc/proto-loader.
"use strict";
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [protoFolder, pipeline, epochs, token, ...addresses] = process.argv.slice(2);
const OPEN_REQUESTS = 4;
const MIN_BACKOFF = 50, MAX_BACKOFF = 1000; // milliseconds

const load = (file) => grpc.loadPackageDefinition(
  loader.loadSync(file, { includeDirs: [protoFolder], longs: Number, oneofs: true, defaults: true }));
const { FeedService } = load("infeed/v1/feed_service.proto").infeed.v1;
const decode = (bytes) => {
  // proto-loader has deserializers of methods only; these two messages are short enough by hand.
  const fields = {};
  for (let at = 0; at < bytes.length;) {
    const varint = () => {
      let value = 0, shift = 1, byte;
      do { byte = bytes[at++]; value += (byte & 127) * shift; shift *= 128; } while (byte & 128);
      return value;
    };
    const key = varint(), number = key >> 3;
    if ((key & 7) === 0) fields[number] = varint();
    else { const size = varint(); fields[number] = bytes.subarray(at, at += size); }
  }
  return fields;
};

const metadata = new grpc.Metadata();
if (token) metadata.set("authorization", `Bearer ${token}`);
const options = { "grpc.default_compression_algorithm": 2 }; // gzip
const connect = (address) => new FeedService(address, grpc.credentials.createInsecure(), options);
const print = (value) => console.log(JSON.stringify(value));
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Returns the reason in grpc-status-details-bin: Status.details[0].value of ErrorInfo. */
function reasonOf(error) {
  const [details] = error.metadata ? error.metadata.get("grpc-status-details-bin") : [];
  if (!details) return null;
  const info = decode(decode(decode(details)[3])[2]);
  return `${info[2]}/${info[1]}`;
}

const getPipeline = (client) => new Promise((done, fail) =>
  client.getPipeline({ name: pipeline }, metadata, { deadline: Date.now() + 20000 },
    (error, response) => error ? fail(error) : done(response.pipeline)));

/** Reads the steps from `next` on one stream; returns the first step without a batch. */
function readStream(client, plan, next) {
  return new Promise((done, fail) => {
    const call = client.streamBatches(metadata);
    let requested = next, draining = false, ended = false;
    let opened = null, header = null, parts = [], size = 0;
    const request = () => {
      while (!draining && requested < plan.steps && requested < next + OPEN_REQUESTS) {
        const start = requested * plan.stride;
        const count = Math.min(plan.stride, plan.positions - start);
        call.write({ batch: { requestId: requested, start, count } });
        requested += 1;
      }
      if (!ended && (draining || requested === plan.steps)) { ended = true; call.end(); }
    };
    const finishBatch = () => {
      const payload = Buffer.concat(parts);
      const index = opened.spec.findIndex((field) => field.name === "x");
      const layout = header.layouts[index];
      const field = payload.subarray(layout.offset, layout.offset + layout.size);
      const filled = header.sampleIds.filter((id) => id >= 0);
      const width = layout.size / 8 / header.sampleIds.length;
      const first = filled.map((_, slot) => Number(field.readBigInt64LE(slot * width * 8)));
      print({ start: header.start, epoch: header.epoch, ids: filled, first, server: plan.address });
      header = null;
      next += 1;
      request();
    };
    call.on("data", (message) => {
      if (message.event === "opened") opened = message.opened;
      if (message.event === "draining") { draining = true; print({ draining: plan.address }); request(); }
      if (message.event === "header") { header = message.header; parts = []; size = 0; }
      if (message.event === "chunk") { parts.push(message.chunk.data); size += message.chunk.data.length; }
      if (header && size === header.payloadSize) finishBatch();
    });
    call.on("error", (error) => fail(Object.assign(error, { next })));
    call.on("end", () => done(next));
    call.write({ open: { pipeline, fingerprint: plan.fingerprint, seed: plan.seed, finish: 2 } });
    request();
  });
}

async function main() {
  let next = 0, steps = Infinity, backoff = MIN_BACKOFF, fingerprint = "";
  for (let turn = 0; next < steps; turn += 1) {
    const address = addresses[turn % addresses.length], client = connect(address);
    try {
      const spec = await getPipeline(client);
      if (fingerprint && fingerprint !== spec.fingerprint) throw new Error("another fingerprint");
      fingerprint = spec.fingerprint;
      const positions = Number(epochs) * spec.sampleCount;
      const stride = spec.batchStride || spec.batchSize;
      steps = Math.ceil(positions / stride);
      const plan = { address, fingerprint, positions, steps, seed: spec.seed, stride };
      next = await readStream(client, plan, next);
      backoff = MIN_BACKOFF;
    } catch (error) {
      next = error.next ?? next;
      const reason = reasonOf(error);
      const retried = error.code === grpc.status.UNAVAILABLE || /SERVER_UNAVAILABLE$/.test(reason);
      if (!retried) { print({ error: grpc.status[error.code] ?? String(error), reason }); process.exit(1); }
      await pause(backoff);
      backoff = Math.min(2 * backoff, MAX_BACKOFF);
    } finally {
      client.close();
    }
  }
}
main();
