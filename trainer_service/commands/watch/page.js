"use strict";
const at = (id) => document.getElementById(id);
const values = [], pressed = new Set();
let about = null, table = [], state = {}, curve = [], lastInput = "", acting = null, hinted = null;

function send(command) {
  return fetch("/control", { method: "POST", body: JSON.stringify(command) })
    .then((answer) => answer.ok ? "" : answer.text().then((text) => { at("note").textContent = text; }))
    .catch(() => { at("note").textContent = "The program behind this page has ended."; });
}
const known = (value) => value !== null && value !== undefined;
const number = (value) => !known(value) ? "–" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : value.toFixed(Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3);
const mean = (list) => list.length ? list.reduce((a, b) => a + b) / list.length : null;

// Three to six round numbers that cover a range.
function ticks(low, high) {
  const size = 10 ** Math.floor(Math.log10((high - low) / 3)), step = [1, 2, 5, 10].map((each) => each * size).find((each) => (high - low) / each <= 4);
  const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(10)));
}

// Series of points [x, y] with a color each, joined by a line or as dots. Without enough points there is no chart.
function chart(canvas, series, xWord, yWord, least = 2) {
  const points = series.flatMap((each) => each.points), figure = canvas.parentElement;
  canvas.dataset.points = points.length;
  figure.hidden = points.length < least;
  if (figure.hidden) return;
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = Number(canvas.dataset.height);
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
  const draw = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), color = (name) => style.getPropertyValue(name);
  draw.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw.font = "11px system-ui, sans-serif";
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]), first = Math.min(...xs), last = Math.max(...xs);
  const low = Math.min(...ys), high = Math.max(...ys), apart = high - low > 1e-9 * Math.max(1, Math.abs(high));
  const marks = apart ? ticks(low, high) : ticks(low - Math.abs(low || 1) / 10, high + Math.abs(high || 1) / 10), labels = marks.map((mark) => mark.toLocaleString("en", { maximumFractionDigits: 4 }));
  const left = 8 + Math.max(...labels.map((label) => draw.measureText(label).width)), right = width - 10, top = 18, bottom = height - 18;
  const inset = series.some((each) => each.dots) ? 6 : 0;
  const x = (v) => left + inset + (right - left - 2 * inset) * (last > first ? (v - first) / (last - first) : 0.5), y = (v) => bottom - (bottom - top) * (v - marks[0]) / (marks[marks.length - 1] - marks[0]);
  draw.fillStyle = color("--soft"); draw.strokeStyle = color("--line"); draw.textBaseline = "middle"; draw.textAlign = "right";
  marks.forEach((mark, i) => { draw.fillText(labels[i], left - 5, y(mark)); draw.beginPath(); draw.moveTo(left, y(mark)); draw.lineTo(right, y(mark)); draw.stroke(); });
  draw.textAlign = "left"; draw.fillText(yWord, 0, 6); if (last > first) draw.fillText(first.toLocaleString("en"), left, height - 7);
  draw.textAlign = "center"; draw.fillText(xWord, (left + right) / 2, height - 7);
  draw.textAlign = last > first ? "right" : "left"; draw.fillText(last.toLocaleString("en"), last > first ? right : left, height - 7);
  series.forEach((each) => {
    draw.fillStyle = draw.strokeStyle = color(each.color); draw.lineWidth = 1.8; draw.lineJoin = "round"; draw.beginPath();
    each.points.forEach((p, i) => { if (each.dots) { draw.moveTo(x(p[0]), y(p[1])); draw.arc(x(p[0]), y(p[1]), 3, 0, 7); } else if (i) draw.lineTo(x(p[0]), y(p[1])); else draw.moveTo(x(p[0]), y(p[1])); });
    if (each.dots || each.points.length === 1) draw.fill(); else draw.stroke();
  });
}

function row(words, left, right, text, taken, at) {
  const element = document.createElement("div"), bar = document.createElement("i"), fill = document.createElement("b");
  const [first, last] = words.map((word) => Object.assign(document.createElement("span"), { textContent: word }));
  element.className = "row" + (taken ? " taken" : "") + (last ? " number" : "");
  fill.style.left = 100 * left + "%"; fill.style.width = 100 * Math.max(0, right - left) + "%";
  bar.append(fill);
  if (known(at)) { const place = document.createElement("u"); place.style.left = 1 + 98 * at + "%"; bar.append(place); }
  element.append(first, bar, ...(last ? [last] : []), Object.assign(document.createElement("span"), { textContent: text }));
  return element;
}

function actions(frame) {
  const rows = [], share = (value) => (Math.max(-1, Math.min(1, value)) + 1) / 2;
  (frame.discrete || []).forEach((taken, b) => (acting.words.branches[b] || []).forEach((word, choice) => {
    const p = frame.probabilities?.[b]?.[choice];
    rows.push(row([word], 0, p ?? Number(choice === taken), known(p) ? p.toFixed(2) : choice === taken ? "taken" : "", choice === taken));
  }));
  (frame.continuous || []).forEach((value, i) => {
    const middle = frame.mean?.[i] ?? value, spread = frame.deviation?.[i] ?? 0;
    rows.push(row(acting.words.continuous[i] || ["", ""], share(middle - spread), share(middle + spread), value.toFixed(2).replace(/^-(?=0\.00$)/, ""), false, share(value)));
  });
  at("actions-title").hidden = !rows.length;
  at("actions-title").textContent = frame.probabilities?.length ? "Action probabilities" : frame.mean?.length ? "Actions: mean, deviation and the one taken" : "Action taken";
  at("actions").replaceChildren(...rows);
}

const KINDS = { policy: ["--mark", "this policy"], others: ["--soft", "earlier policies, or mixed"], person: ["--person", "you"] };

function episodes(frame) {
  const returns = frame.returns || [], players = frame.players || [], first = (frame.episode || 1) - returns.length;
  const of = (kind) => returns.map((value, i) => [first + i, value]).filter((_, i) => players[i] === kind);
  const own = of("person").map((point) => point[1]);
  at("mean").textContent = number(mean(of("policy").map((point) => point[1])));
  at("own").textContent = number(mean(own)); at("own").parentElement.hidden = !own.length;
  at("mean").parentElement.hidden = own.length > 0 && !of("policy").length;
  const kinds = Object.keys(KINDS).filter((kind) => of(kind).length);
  at("legend").replaceChildren(...(kinds.join() === "policy" ? [] : kinds).map((kind) => {
    const entry = Object.assign(document.createElement("i"), { textContent: KINDS[kind][1] });
    entry.style.setProperty("--dot", `var(${KINDS[kind][0]})`);
    return entry;
  }));
  chart(at("returns"), kinds.map((kind) => ({ points: of(kind), color: KINDS[kind][0], dots: true })), "episode", "return", 1);
}

function draw() {
  if (!about) return;
  chart(at("values"), [{ points: values, color: "--mark" }], "step", "value");
  episodes(state);
  at("learning").hidden = !about.has_run || curve.length < 2;
  const names = [...new Set(curve.map((point) => point.behavior))], colors = ["--mark", "--person", "--agent", "--soft"];
  if (!at("learning").hidden) chart(at("curve"), names.map((name, i) => ({ points: curve.filter((each) => each.behavior === name).map((each) => [each.step, each.return]), color: colors[i % 4] })), "steps of training", "return");
}

const PAIRS = [["ArrowLeft", "ArrowRight"], ["ArrowDown", "ArrowUp"], ["KeyA", "KeyD"], ["KeyS", "KeyW"]];
const FOURS = [["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"], ["KeyW", "KeyS", "KeyA", "KeyD"]];
const SINGLES = ["Space", "ShiftLeft", "KeyE", "KeyQ", "KeyF", "KeyR"], DIGITS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0].map((digit) => "Digit" + digit);
const KEY_OF_WORD = { left: "ArrowLeft", right: "ArrowRight", up: "ArrowUp", down: "ArrowDown", forward: "ArrowUp", far: "ArrowUp", main: "ArrowUp", near: "ArrowDown", jump: "Space", fire: "Space", touch: "Space" };
const IDLE = ["nothing", "stay", "stand", "hold", "noop"];
const GLYPHS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", ShiftLeft: "Shift" };
const DEAD_ZONE = 0.15;

// Words for each action of a behavior: the environment's own, those of words.json, or numbers.
function wordsOf({ continuous_size, discrete_branches }) {
  const fits = ([name, continuous, branches]) => about.environment.startsWith(name) && continuous.length === continuous_size && branches.map((each) => each.length).join() === discrete_branches.join();
  const found = [["", [], [about.meanings.map((each) => each.toLowerCase())]], ...table].find(fits);
  const place = (branch) => discrete_branches.length > 1 ? `branch ${branch}: ` : "";
  return found ? { continuous: found[1], branches: found[2] } : {
    continuous: Array.from({ length: continuous_size }, (_, i) => [`action ${i} −`, `action ${i} +`]),
    branches: discrete_branches.map((choices, b) => Array.from({ length: choices }, (_, i) => `${place(b)}choice ${i}`)),
  };
}

// Keys for every action: arrows for words such as left, then pairs, then digits. While none of a branch's keys is
// pressed, its idle choice is taken: the one that does nothing, else the first. Where keys run out, an action stays at 0.
function keysOf(spec) {
  const words = wordsOf(spec), keys = new Map(), free = (group) => group.every((key) => !keys.has(key));
  const keyOf = (word) => word.split(/[ ()]+/).map((each) => KEY_OF_WORD[each]).find(Boolean);
  words.continuous.forEach((ends, index) => {
    const own = ends.map(keyOf), pair = own.every(Boolean) && free(own) ? own : PAIRS.find(free) || [];
    pair.forEach((key, i) => keys.set(key, { index, value: 2 * i - 1, word: ends[i] }));
  });
  const idle = words.branches.map((choices) => Math.max(0, choices.findIndex((word) => IDLE.includes(word))));
  words.branches.forEach((choices, branch) => {
    const bind = (key, choice) => keys.set(key, { branch, choice, word: choices[choice] }), bound = new Set();
    choices.forEach((word, choice) => { const key = keyOf(word); if (key && free([key])) { bind(key, choice); bound.add(choice); } });
    const only = !words.continuous.length && words.branches.length === 1 && choices.length === 2;  // like left and right
    const rest = choices.map((_, choice) => choice).filter((choice) => !bound.has(choice) && (only || choice !== idle[branch]));
    const groups = { 1: SINGLES.map((key) => [key]), 2: PAIRS, 4: FOURS }[rest.length] || [], spare = [...DIGITS, ...SINGLES].filter((key) => free([key]));
    (groups.find(free) || spare).slice(0, rest.length).forEach((key, i) => bind(key, rest[i]));
  });
  return { words, keys, idle };
}

// The action of pressed keys and of a gamepad's axes; an axis that is out of its centre wins.
function actionOf({ words, keys, idle }, held, axes) {
  const continuous = words.continuous.map(() => 0), discrete = [...idle];
  keys.forEach((each, key) => { if (held.has(key)) { if ("branch" in each) discrete[each.branch] = each.choice; else continuous[each.index] += each.value; } });
  axes.slice(0, continuous.length).forEach((value, i) => { if (Math.abs(value) > DEAD_ZONE) continuous[i] = value; });
  return { continuous, discrete };
}

const rank = (code) => (Object.keys(GLYPHS).indexOf(code) + 9) % 9;  // arrows first

function hints(control) {
  if (hinted === control) return;
  hinted = control;
  at("hints").classList.toggle("held", control);
  const keys = control ? [...acting.keys].map(([code, each]) => [code, each.word]).sort((a, b) => rank(a[0]) - rank(b[0])) : [["KeyT", "take control"], ["KeyP", "pause"], ["KeyN", "one step"]];
  at("hints").replaceChildren(...keys.map(([code, word]) => {
    const chip = document.createElement("button"), name = document.createElement("b");
    chip.tabIndex = -1; chip.dataset.code = code;
    name.textContent = GLYPHS[code] || code.replace(/^(Key|Digit)/, "");
    chip.append(name, " " + word);
    const hold = (down) => (event) => { event.preventDefault(); if (down) press(code); else release(code); };
    chip.onpointerdown = hold(true); chip.onpointerup = chip.onpointercancel = chip.onpointerleave = hold(false);
    return chip;
  }));
}

function show(frame) {
  if (frame.behavior !== state.behavior) { acting = keysOf(about.actions[frame.behavior]); hinted = null; }
  state = frame;
  at("policy").textContent = frame.policy || "Watch";
  document.title = [frame.policy, about.environment].filter(Boolean).join(" · ") || "Watch";
  at("progress").textContent = frame.progress || "";
  at("note").textContent = frame.error || frame.note || "";
  if (frame.picture) at("picture").src = "data:image/jpeg;base64," + frame.picture;
  at("play").textContent = frame.paused ? "Play" : "Pause";
  at("control").textContent = frame.control ? "Give control back" : "Take control";
  at("control").classList.toggle("on", Boolean(frame.control));
  if (acting) hints(Boolean(frame.control));
  at("follow").checked = Boolean(frame.follows);
  if (document.activeElement !== at("speed")) at("speed").value = frame.speed;
  at("episode").textContent = frame.episode ?? "–"; at("length").textContent = frame.length ?? "–";
  at("return").textContent = number(frame.return); at("value").textContent = number(frame.value);
  at("value").parentElement.hidden = !known(frame.value);
  if (known(frame.value) && (!values.length || values[values.length - 1][0] !== frame.step)) {
    values.push([frame.step, frame.value]); if (values.length > 300) values.shift();
  }
  if (frame.curve) curve = frame.curve;
  if (acting) actions(frame);
  draw();
}

function input() {
  const pads = [...(navigator.getGamepads ? navigator.getGamepads() : [])].filter(Boolean), held = new Set(pressed);
  let axes = [];
  if (pads.length) {
    axes = pads[0].axes.slice(0, 4).map((value, i) => Number((i % 2 ? -value : value).toFixed(2)));
    const cross = { 12: "ArrowUp", 13: "ArrowDown", 14: "ArrowLeft", 15: "ArrowRight", 0: "Space", 1: "ShiftLeft", 2: "KeyE", 3: "KeyQ" };
    Object.entries(cross).forEach(([button, key]) => { if (pads[0].buttons[button]?.pressed) held.add(key); });
  }
  if (!acting) return;
  const action = actionOf(acting, held, axes), now = JSON.stringify(action);
  at("hints").querySelectorAll("button").forEach((chip) => chip.classList.toggle("down", Boolean(state.control) && held.has(chip.dataset.code)));
  if (state.control && now !== lastInput) { lastInput = now; send({ do: "input", ...action }); }
}

// Whether a key, of the keyboard or of the screen, has a meaning here.
function press(code) {
  if (state.control && acting?.keys.has(code)) { pressed.add(code); input(); return true; }
  const button = { KeyP: "play", KeyN: "step", KeyT: "control" }[code];
  if (button) at(button).click();
  return Boolean(button);
}
function release(code) { pressed.delete(code); input(); }

at("play").onclick = () => send({ do: state.paused ? "play" : "pause" });
at("step").onclick = () => send({ do: "step" });
at("speed").onchange = () => { send({ do: "speed", value: Number(at("speed").value) }); at("speed").blur(); };
at("load").onclick = () => send({ do: "checkpoint", value: at("checkpoint").value });
at("follow").onchange = () => send({ do: "follow", value: at("follow").checked });
at("control").onclick = () => { send({ do: "control", value: !state.control }); lastInput = ""; pressed.clear(); at("control").blur(); };
document.addEventListener("keydown", (event) => {
  if (!about || ["INPUT", "SELECT"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey || event.repeat && !state.control) return;
  if (press(event.code)) event.preventDefault();
});
document.addEventListener("keyup", (event) => release(event.code));
window.addEventListener("blur", () => { pressed.clear(); input(); });
window.addEventListener("resize", draw);
setInterval(input, 30);

Promise.all(["/about", "/words.json"].map((path) => fetch(path).then((answer) => answer.json()))).then(([found, words]) => {
  about = found; table = words;
  at("environment").textContent = found.environment;
  at("speed").replaceChildren(...found.speeds.map((speed) => new Option(speed + " ×", speed)));
  at("speed").value = 1;
  at("checkpoints").hidden = !found.has_run; at("scene").hidden = !found.has_scene; at("figures").hidden = !found.has_scene;
  at("watched").classList.toggle("marked", found.marks);
  const source = new EventSource("/events");
  const end = (text) => { source.close(); state.control = false; at("note").textContent = text; };
  source.onmessage = (event) => {
    const frame = JSON.parse(event.data);
    show(frame);
    if (frame.over) end(frame.error || "This has ended; its result is in the terminal.");
  };
  source.onerror = () => end("The program behind this page has ended.");
});
