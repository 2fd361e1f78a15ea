"use strict";
const at = (id) => document.getElementById(id);
const values = [], pressed = new Set();
let about = null, state = {}, curve = [], lastInput = "";

function send(command) {
  return fetch("/control", { method: "POST", body: JSON.stringify(command) })
    .then((answer) => answer.ok ? "" : answer.text().then((text) => { at("note").textContent = text; }))
    .catch(() => { at("note").textContent = "The program behind this page has ended."; });
}
const number = (value) => value === null || value === undefined ? "–" : Math.abs(value) >= 1000 ? value.toFixed(0) : value.toFixed(3);

function line(canvas, points, color) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = Number(canvas.dataset.height ??= canvas.height);
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
  const draw = canvas.getContext("2d");
  draw.setTransform(ratio, 0, 0, ratio, 0, 0);
  canvas.dataset.points = points.length;
  if (!points.length) return;
  const style = getComputedStyle(document.documentElement), xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  let low = Math.min(...ys), high = Math.max(...ys); const first = Math.min(...xs), last = Math.max(...xs);
  if (high - low < 1e-9) { high += 0.5; low -= 0.5; }
  const x = (v) => 46 + (width - 56) * (last > first ? (v - first) / (last - first) : 0.5);
  const y = (v) => height - 16 - (height - 24) * (v - low) / (high - low);
  draw.font = "11px system-ui"; draw.fillStyle = style.getPropertyValue("--soft");
  draw.textAlign = "right"; draw.fillText(number(high), 42, 12); draw.fillText(number(low), 42, height - 12);
  draw.fillText(last.toLocaleString("en"), width - 8, height - 2);
  draw.strokeStyle = style.getPropertyValue("--line"); draw.strokeRect(46, 4, width - 56, height - 18);
  draw.strokeStyle = style.getPropertyValue(color || "--mark"); draw.lineWidth = 1.6; draw.beginPath();
  points.forEach((p, i) => i ? draw.lineTo(x(p[0]), y(p[1])) : draw.moveTo(x(p[0]), y(p[1])));
  draw.stroke();
}

function row(name, left, right, text, taken) {
  const element = document.createElement("div"), bar = document.createElement("i"), fill = document.createElement("b");
  element.className = "row" + (taken ? " taken" : "");
  const label = document.createElement("span"), figure = document.createElement("span");
  label.textContent = name; figure.textContent = text;
  fill.style.left = 100 * left + "%"; fill.style.width = 100 * Math.max(0, right - left) + "%";
  bar.append(fill); element.append(label, bar, figure);
  return element;
}

function actions(frame) {
  const rows = [];
  (frame.probabilities || []).forEach((branch, b) => branch.forEach((p, choice) =>
    rows.push(row(`${b}: ${choice}`, 0, p, p.toFixed(2), frame.discrete && frame.discrete[b] === choice))));
  (frame.continuous || []).forEach((value, i) => {
    const middle = (frame.mean || [])[i] ?? value, spread = (frame.deviation || [])[i] ?? 0.02;
    const low = Math.max(-1, middle - spread - 0.01), high = Math.min(1, middle + spread + 0.01);
    rows.push(row(`a${i}`, (low + 1) / 2, (high + 1) / 2, value.toFixed(2), false));
  });
  if (!rows.length && frame.discrete) frame.discrete.forEach((choice, b) => rows.push(row(`${b}: ${choice}`, 0, 1, "taken", true)));
  at("actions").replaceChildren(...rows);
}

function show(frame) {
  state = frame;
  document.title = at("policy").textContent = frame.policy || "Watch";
  at("note").textContent = frame.error || frame.note || "";
  if (frame.picture) at("picture").src = "data:image/jpeg;base64," + frame.picture;
  at("play").textContent = frame.paused ? "Play" : "Pause";
  at("control").textContent = frame.control ? "Give control back" : "Take control";
  at("control").classList.toggle("on", Boolean(frame.control));
  at("follow").checked = Boolean(frame.follows);
  if (document.activeElement !== at("speed")) at("speed").value = frame.speed;
  const returns = frame.returns || [];
  at("episode").textContent = frame.episode ?? "–"; at("length").textContent = frame.length ?? "–";
  at("return").textContent = number(frame.return); at("value").textContent = number(frame.value);
  at("mean").textContent = returns.length ? number(returns.reduce((a, b) => a + b) / returns.length) : "–";
  if (frame.value !== null && frame.value !== undefined && (!values.length || values[values.length - 1][0] !== frame.step)) {
    values.push([frame.step, frame.value]); if (values.length > 300) values.shift();
  }
  if (frame.curve) curve = frame.curve;
  actions(frame); line(at("values"), values); line(at("returns"), returns.map((value, i) => [i + 1, value]));
  at("learning").hidden = !(about && about.has_run);
  if (about && about.has_run) line(at("curve"), curve.map((point) => [point.step, point.return]));
}

function input() {
  const pads = [...(navigator.getGamepads ? navigator.getGamepads() : [])].filter(Boolean), held = new Set(pressed);
  let axes = [];
  if (pads.length) {
    axes = pads[0].axes.slice(0, 4).map((value, i) => Number((i % 2 ? -value : value).toFixed(2)));
    const cross = { 12: "ArrowUp", 13: "ArrowDown", 14: "ArrowLeft", 15: "ArrowRight", 0: "Space", 1: "ShiftLeft", 2: "KeyE", 3: "KeyQ" };
    Object.entries(cross).forEach(([button, key]) => { if (pads[0].buttons[button]?.pressed) held.add(key); });
  }
  const now = JSON.stringify([[...held].sort(), axes]);
  if (state.control && now !== lastInput) { lastInput = now; send({ do: "input", pressed: [...held], axes }); }
}

at("play").onclick = () => send({ do: state.paused ? "play" : "pause" });
at("step").onclick = () => send({ do: "step" });
at("speed").onchange = () => { send({ do: "speed", value: Number(at("speed").value) }); at("speed").blur(); };
at("load").onclick = () => send({ do: "checkpoint", value: at("checkpoint").value });
at("follow").onchange = () => send({ do: "follow", value: at("follow").checked });
at("control").onclick = () => { send({ do: "control", value: !state.control }); lastInput = ""; at("control").blur(); };
document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return;
  const bound = about && about.keys.some((each) => each[0] === event.code);
  if (state.control && bound) { event.preventDefault(); pressed.add(event.code); input(); return; }
  if (event.code === "KeyP") at("play").click();
  if (event.code === "KeyN") at("step").click();
  if (event.code === "KeyT") at("control").click();
});
document.addEventListener("keyup", (event) => { pressed.delete(event.code); input(); });
window.addEventListener("blur", () => { pressed.clear(); input(); });
setInterval(input, 30);

fetch("/about").then((answer) => answer.json()).then((found) => {
  about = found;
  at("speed").replaceChildren(...found.speeds.map((speed) => new Option(speed + " ×", speed)));
  at("speed").value = 1;
  at("checkpoints").hidden = !found.has_run; at("scene").hidden = !found.has_scene;
  at("actions-title").textContent = found.branches.length ? "Action probabilities" : "Actions: mean and deviation";
  at("keys").querySelector("ul").replaceChildren(...found.keys.map((each) => Object.assign(document.createElement("li"), { textContent: each[1] })));
  const source = new EventSource("/events");
  const end = (text) => { source.close(); state.control = false; at("note").textContent = text; };
  source.onmessage = (event) => {
    const frame = JSON.parse(event.data);
    show(frame);
    if (frame.over) end(frame.error || "This has ended; its result is in the terminal.");
  };
  source.onerror = () => end("The program behind this page has ended.");
});
