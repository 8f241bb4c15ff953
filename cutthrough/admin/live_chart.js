// The last hour as lines over a time axis. Rows come from /history, ten seconds each; what has
// happened since the last of them is the line's end.
const HOUR_S = 3600, TICK_S = 600, SPACE = {left: 54, right: 8, top: 10, bottom: 20};
const SERIES = {
  bytes: {name: "bytes", show: n => bytes(n) + "/s", least: 1000,
    lines: [["down", "down", row => row.down / row.s], ["up", "up", row => row.up / row.s]]},
  requests: {name: "requests", show: n => figure(n) + "/s", least: 1,
    lines: [["requests", "up", row => row.requests / row.s],
      ["refused, failed", "bad", row => row.failed / row.s]]},
  connections: {name: "connections", show: figure, least: 4,
    lines: [["connections", "up", row => row.connections]]},
  cpu: {name: "CPU", show: n => `${Math.round(100 * n)} %`, least: 0.1,
    lines: [["CPU of the workers", "up", row => row.cpu_s / row.s]]},
};
let series = "bytes", hour = [], historyEnd = 0, since = null, cursor = null;

function figure(n) {
  return n >= 100 || Number.isInteger(n) ? Math.round(n).toLocaleString("en") : n.toFixed(1);
}
const clockOf = at => new Date(at * 1000).toTimeString().slice(0, 5);
async function readHistory() {
  try {
    const {every_s, fields, rows} = await (await fetch(`history?after=${historyEnd}`)).json();
    for (const values of rows)
      hour.push({...Object.fromEntries(fields.map((field, i) => [field, values[i]])), s: every_s});
    if (!rows.length) return;
    historyEnd = hour.at(-1).at;
    hour = hour.slice(-HOUR_S / every_s);
    since = null;
  } catch { /* the state says that there is no answer */ }
}
// Adds what was counted in these seconds to the row that is not complete yet
function noteSince(grown, seconds, connections) {
  since ??= {s: 0, up: 0, down: 0, requests: 0, failed: 0, cpu_s: 0};
  for (const field in grown) since[field] += grown[field];
  since.s += seconds;
  since.at = Date.now() / 1000;
  since.connections = connections;
}
const rowsOfHour = () => since?.s > 1 ? [...hour, since] : hour;

function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
// The least of 1, 2 or 5 times a power of ten that is not below n
function roundUp(n) {
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map(step => step * power).find(step => step >= n * 0.999);
}
function draw() {
  const box = $("chart"), width = box.clientWidth, height = box.clientHeight;
  if (!width) return;
  const now = Date.now() / 1000, rows = rowsOfHour().filter(row => row.at > now - HOUR_S);
  const {show, least, lines} = SERIES[series], inner = width - SPACE.left - SPACE.right;
  const most = roundUp(Math.max(least, ...rows.flatMap(row => lines.map(line => line[2](row)))));
  const x = at => SPACE.left + inner * (1 - (now - at) / HOUR_S);
  const y = n => SPACE.top + (height - SPACE.top - SPACE.bottom) * (1 - n / most);
  const parts = [];
  if (rows.length && x(rows[0].at) > SPACE.left + 2)
    parts.push(svg("rect", {class: "before", x: SPACE.left, y: SPACE.top,
      width: x(rows[0].at - rows[0].s) - SPACE.left > 0 ? x(rows[0].at - rows[0].s) - SPACE.left : 0,
      height: y(0) - SPACE.top}));
  for (const part of [0, .5, 1]) {
    parts.push(svg("line", {class: "grid", x1: SPACE.left, x2: width - SPACE.right,
      y1: y(most * part), y2: y(most * part)}));
    parts.push(svg("text", {x: SPACE.left - 6, y: y(most * part) + 4, "text-anchor": "end"},
      show(most * part)));
  }
  const step = inner < 420 ? 2 * TICK_S : TICK_S;
  for (let at = Math.ceil((now - HOUR_S) / step) * step; at <= now; at += step)
    if (x(at) < width - 14) parts.push(svg("text", {x: x(at), y: height - 4,
      "text-anchor": x(at) < SPACE.left + 12 ? "start" : "middle"}, clockOf(at)));
  for (const [, kind, value] of lines) {
    if (!rows.length) break;
    const points = rows.map(row => `${x(row.at).toFixed(1)},${y(value(row)).toFixed(1)}`);
    const first = x(rows[0].at).toFixed(1), last = x(rows.at(-1).at).toFixed(1);
    parts.push(svg("path", {class: `area ${kind}`,
      d: `M${first},${y(0)}L${points.join("L")}L${last},${y(0)}Z`}));
    parts.push(svg("path", {class: `line ${kind}`, d: `M${points.join("L")}`}));
  }
  const chosen = cursor === null ? null : nearest(rows, now - HOUR_S * (1 - cursor));
  if (chosen) parts.push(svg("line", {class: "cursor", x1: x(chosen.at), x2: x(chosen.at),
    y1: SPACE.top, y2: y(0)}));
  const picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true"});
  picture.append(...parts);
  box.replaceChildren(picture);
  tellPoint(chosen ?? rows.at(-1), chosen ? "" : "now");
  box.setAttribute("aria-label", `${SERIES[series].name}, the last hour`);
}
const nearest = (rows, at) => rows.reduce((best, row) =>
  best && Math.abs(best.at - at) <= Math.abs(row.at - at) ? best : row, null);
function tellPoint(row, when) {
  const text = row ? `${when || new Date(row.at * 1000).toTimeString().slice(0, 8)}: `
    + SERIES[series].lines.map(([name, , value]) =>
      `${SERIES[series].show(value(row))} ${name}`).join(", ") : "no history yet";
  if ($("at").textContent !== text) $("at").textContent = text;
}
function startChart() {
  $("series").append(...Object.entries(SERIES).map(([key, {name}]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.setAttribute("aria-pressed", String(key === series));
    button.addEventListener("click", () => {
      series = key;
      for (const other of $("series").children)
        other.setAttribute("aria-pressed", String(other === button));
      draw();
    });
    return button;
  }));
  const move = to => {
    cursor = to === null ? null : Math.max(0, Math.min(1, to));
    draw();
  };
  $("chart").addEventListener("pointermove", event => {
    const box = $("chart").getBoundingClientRect();
    move((event.clientX - box.left - SPACE.left) / (box.width - SPACE.left - SPACE.right));
  });
  $("chart").addEventListener("pointerleave", () => move(null));
  $("chart").addEventListener("blur", () => move(null));
  $("chart").addEventListener("keydown", event => {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (by) move((cursor ?? 1) + by / 120);
    if (event.key === "Escape") move(null);
    if (by) event.preventDefault();
  });
  new ResizeObserver(draw).observe($("chart"));
}
