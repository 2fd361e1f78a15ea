// Acts by the ONNX model of a policy, which policy.json beside it describes. Needs onnxruntime-web only, in a page or Node.
export class Policy {
  static async load(ort, description = "policy.json") { // ort: the module onnxruntime-web
    const place = new URL(description, import.meta.url);
    const read = async (url) => {
      if (url.protocol === "file:") return (await import("node:fs/promises")).readFile(url);
      const answer = await fetch(url);
      if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
      return new Uint8Array(await answer.arrayBuffer());
    };
    const policy = Object.assign(new Policy(), { ort, memories: new Map() }); // memories: of each agent, by its id
    policy.about = JSON.parse(new TextDecoder().decode(await read(place)));
    policy.session = await ort.InferenceSession.create(await read(new URL(policy.about.model, place)));
    return policy;
  }
  // Returns the actions of M agents. All arrays are flat, agent by agent. observations: one for each sensor; indices:
  // in the group.
  async act(observations, { ids, masks, indices, greedy = true } = {}) {
    const { about, ort, memories } = this, feed = {}, size = (shape) => shape.reduce((a, b) => a * b, 1);
    const rows = observations[0].length / size(about.observations[0].shape);
    const tensor = (numbers, shape) => new ort.Tensor("float32", Float32Array.from(numbers), [rows, ...shape]);
    about.observations.forEach((sensor, i) => {
      const unit = (observations[i].BYTES_PER_ELEMENT === 1 && sensor.bytes_per_unit) || 1;
      feed[sensor.input] = tensor(Array.from(observations[i], (number) => number / unit), sensor.shape);
    });
    const { agent_index: index, action_masks: mask, memory } = about, length = memory && size(memory.shape);
    const oneHot = (at) => Array(index.size).fill(0).with(at, 1); // refuses an index that is too large
    if (index) feed[index.input] = tensor(Array.from(indices).flatMap(oneHot), [index.size]);
    if (mask) feed[mask.input] = tensor(masks ?? Array(rows * mask.size).fill(1), [mask.size]);
    const agents = ids ?? Array.from({ length: rows }, (_, i) => i), start = Array(length || 0).fill(memory?.start);
    const kept = (agent) => Array.from(memories.get(agent) ?? start);
    if (memory) feed[memory.input] = tensor(agents.flatMap(kept), memory.shape);
    const found = await this.session.run(feed), which = greedy ? "greedy" : "drawn";
    if (memory) agents.forEach((agent, i) =>
      memories.set(agent, found[memory.output].data.slice(i * length, (i + 1) * length)));
    const kinds = ["continuous", "discrete"].filter((kind) => about[kind]);
    return Object.fromEntries(kinds.map((kind) => [kind, Array.from(found[about[kind][which]].data, Number)]));
  }
  reset(...ids) { ids.length ? ids.forEach((id) => this.memories.delete(id)) : this.memories.clear(); } // forgets
}
