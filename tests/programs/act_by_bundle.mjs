// Plays recorded decisions to a bundle's runner in Node: node act_by_bundle.mjs ORT BUNDLE EPISODE.json RESULT.json
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [library, bundle, episode, result] = process.argv.slice(2);
const ort = await import(pathToFileURL(library));
ort.env.wasm.numThreads = 1;
const { Policy } = await import(pathToFileURL(`${bundle}/policy.mjs`));
const recorded = JSON.parse(readFileSync(episode));

async function act(policy, decision, copies = 1, greedy = true) {
  const repeated = (rows) => rows && Array.from({ length: copies }, () => rows).flat(Infinity);
  const sensors = decision.observations.map(([numbers, kind]) =>
    (kind === "uint8" ? Uint8Array : Float32Array).from(repeated(numbers)));
  const masks = repeated(decision.masks) ?? undefined, indices = repeated(decision.indices) ?? undefined;
  const actions = await policy.act(sensors, { ids: decision.ids ?? undefined, masks, indices, greedy });
  const rows = sensors[0].length / (decision.observations[0][0].flat(Infinity).length / decision.observations[0][0].length);
  const nested = (flat) => Array.from({ length: rows }, (_, i) => flat.slice(i * flat.length / rows, (i + 1) * flat.length / rows));
  return Object.fromEntries(Object.entries(actions).map(([kind, flat]) => [kind, nested(flat)]));
}

const policy = await Policy.load(ort), decided = [];
for (const decision of recorded.decisions) {
  if (decision.begin) policy.reset(...decision.begin);
  decided.push(await act(policy, decision));
}
const drawn = [await act(await Policy.load(ort), recorded.crowd, recorded.copies, false)];
writeFileSync(result, JSON.stringify({ decided, drawn }));
