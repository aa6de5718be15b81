// Shows how a run stands and what changes. What it is sent is text and becomes nothing else; only what lies behind a round
// comes as markup, which the program has made and escaped.
"use strict";

const tasks = new Map(); // by number: {row, box, parts, turns}
const opened = new Map(); // markup of rounds that were opened, by address
const NEWS = 12; // rounds that are listed as they come
let summary = null, devices = [], skew = 0;

const at = (id) => document.getElementById(id);
const el = (name, kind, text) => {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
};
const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const wait = (ms) => {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + String(s % 60).padStart(2, "0") + " s";
  return Math.floor(s / 3600) + " h " + String(Math.floor(s / 60) % 60).padStart(2, "0") + " min";
};
const since = (ms) => wait(Date.now() + skew - ms);
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const name = (row) => (summary && summary.runs.length > 1 ? summary.runs[row.run].name + ": " : "") + row.name;

// When what a task does began: not before whoever works on the run did.
const begun = (id, ms) => (tasks.has(id) && summary ? Math.max(ms, summary.runs[tasks.get(id).row.run].writes_since_ms || 0) : ms);

// What lies behind a round, fetched when it is opened.
async function fill(box, address, is_over) {
  if (box.dataset.full === address && is_over) return;
  box.dataset.full = address;
  try {
    let text = opened.get(address);
    if (!text) {
      const answer = await fetch(address);
      text = await answer.text();
      if (!answer.ok) throw new Error(text);
      if (is_over) opened.set(address, text);
    }
    const read = new DOMParser().parseFromString(text, "text/html");
    box.replaceChildren(...read.body.childNodes);
  } catch (why) {
    delete box.dataset.full;
    box.replaceChildren(el("p", "warning", "It cannot be shown: " + why.message));
  }
}

function fold(address, is_over) {
  const box = el("details"), head = el("summary"), inside = el("div", "inside");
  box.append(head, inside);
  box.addEventListener("toggle", () => { if (box.open) fill(inside, address(), is_over()); });
  return { box, head, inside };
}

// One task: its line, and its rounds once it is opened.
function make(row) {
  const task = { row, turns: new Map() };
  const box = el("details"), head = el("summary"), inside = el("div", "inside");
  const parts = { name: el("b"), doing: el("span", "doing"), dots: el("span", "dots"), result: el("span") };
  head.append(parts.name, parts.doing, parts.dots, parts.result);
  const link = el("a", "", "All of this task");
  link.href = "/task/" + row.id;
  const foot = el("p", "small soft"), list = el("div");
  foot.append(parts.foot = el("span"), link);
  inside.append(foot, list);
  box.append(head, inside);
  box.addEventListener("toggle", () => { if (box.open) rounds(task); });
  Object.assign(task, { box, parts, list });
  return task;
}

function rounds(task) {
  for (const turn of task.row.turns) {
    let shown = task.turns.get(turn.number);
    if (!shown) {
      shown = fold(() => "/task/" + task.row.id + "/round/" + turn.number, () => task.turns.get(turn.number).is_over);
      shown.head.append(el("b", "", "Round " + turn.number), shown.step = el("span", "soft"), shown.outcome = el("span"));
      task.turns.set(turn.number, shown);
      task.list.append(shown.box);
    }
    const is_over = turn.kind !== "open";
    if (is_over && !shown.is_over && shown.box.open) fill(shown.inside, "/task/" + task.row.id + "/round/" + turn.number, true);
    shown.is_over = is_over;
    say(shown.step, " " + turn.step + ": ");
    say(shown.outcome, turn.outcome || "under way");
    shown.outcome.className = turn.kind;
  }
}

function draw(task) {
  const { row, box, parts } = task;
  say(parts.name, name(row));
  parts.result.className = row.kind;
  say(parts.result, row.result);
  box.className = row.state;
  const turns = row.turns;
  while (parts.dots.children.length > turns.length) parts.dots.lastChild.remove();
  turns.forEach((turn, i) => {
    const dot = parts.dots.children[i] || parts.dots.appendChild(el("i"));
    dot.className = turn.kind;
    dot.title = "round " + turn.number + ": " + (turn.outcome || "under way");
  });
  const spent = [row.device && row.device + " held for " + wait(row.held_us / 1000), row.usd > 0 && "$" + row.usd.toFixed(2)];
  say(parts.foot, spent.filter(Boolean).map((part) => part + " · ").join(""));
  if (box.open) rounds(task);
  age(task);
  choose(task);
}

// What it does, and for how long.
function age(task) {
  const { row, parts } = task;
  const round = row.turns.length ? row.turns[row.turns.length - 1].number : 0;
  const of = row.of > 0 ? "round " + round + " of " + row.of + ": " : "";
  const works = row.state === "works" && summary && summary.runs[row.run].writer;
  const doing = row.state === "works" && !works ? "stopped while " + row.doing : row.doing;
  say(parts.doing, (row.state === "works" ? of : "") + doing + (works ? ", " + since(begun(row.id, row.at_ms)) : ""));
}

function choose(task) {
  const which = at("which").value, find = at("find").value.toLowerCase();
  const fits = (!which || task.row.state === which) && name(task.row).toLowerCase().includes(find);
  if (task.box.hidden === fits) task.box.hidden = !fits;
}

function counted() {
  const shown = [...tasks.values()].filter((task) => !task.box.hidden).length;
  say(at("shown"), shown === tasks.size ? tasks.size + " tasks" : shown + " of " + tasks.size + " tasks");
}

function sum_up() {
  if (!summary) return;
  document.title = summary.words + " · " + summary.title;
  say(at("title"), summary.title);
  say(at("words"), summary.words);
  say(at("detail"), summary.detail);
  const all = [...tasks.values()].reduce((all, { row }) => all + (row.state === "ended" ? row.turns.length : Math.max(row.of, row.turns.length)), 0);
  at("bar").firstElementChild.style.width = (summary.is_whole ? 100 : all ? 100 * Math.min(1, summary.rounds / all) : 0) + "%";
  const doing = Object.entries(summary.doing).map(([what, n]) => n + " " + what);
  const parts = [summary.rounds + " rounds are over", summary.spent, "devices held for " + wait(summary.held_us / 1000)];
  say(at("spent"), parts.concat(doing).join(" · "));
  runs();
}

function runs() {
  const shown = summary.runs.map((run, number) => {
    const box = el("div", "run small");
    const who = run.writer ? run.writer + " works on it. " : summary.is_whole ? "" : "Nobody works on it; to go on: warpsmith resume " + run.path + " ";
    const line = el("p");
    if (summary.runs.length > 1) line.append(el("b", "", run.name + ": "));
    const link = el("a", "", "The report as it is now");
    link.href = "/run/" + number;
    line.append(who, link);
    box.append(line, el("p", "soft", run.facts.map(([name, value]) => name + ": " + value).join(" · ")));
    if (run.hosts) box.append(el("p", "soft", run.hosts));
    return box;
  });
  at("runs").replaceChildren(...shown);
}

function troubles() {
  const box = at("troubles"), lines = [];
  for (const { row } of tasks.values()) if (row.state === "trouble") lines.push(name(row) + ": " + row.doing);
  for (const run of summary ? summary.runs : []) for (const [path, why] of run.unreadable) lines.push("Not read: " + path + ": " + why);
  box.hidden = lines.length === 0;
  box.lastElementChild.replaceChildren(...lines.map((line) => el("p", "warning", line)));
}

function draw_devices() {
  const named = (id) => (tasks.has(id) ? name(tasks.get(id).row) : "");
  const is_on = summary && summary.runs.some((run) => run.writer);
  at("devices").hidden = devices.length === 0;
  const cards = devices.map((device) => {
    const card = el("div", "card");
    card.append(el("h3", "", device.name));
    const now = is_on ? device.now.map(([id, what, ms]) => named(id) + ": " + what + (ms ? ", " + since(begun(id, ms)) : "")) : [];
    const lines = device.says.concat(now);
    if (now.length > 1) card.append(el("p", "small soft", now.length + " tasks are at it or in line for it"));
    if (lines.length === 0) card.append(el("p", "soft", is_on ? "no task is at it" : "idle"));
    for (const line of lines.slice(0, 6)) card.append(el("p", "small", line));
    if (lines.length > 6) card.append(el("p", "small soft", "and " + (lines.length - 6) + " more"));
    if (device.lately !== null && is_on) {
      const bar = el("div", "held"), part = el("span");
      part.style.width = Math.round(100 * device.lately) + "%";
      bar.append(part);
      card.append(bar, el("p", "small soft", "held for " + Math.round(100 * device.lately) + " % of the last five minutes"));
    }
    const last = device.last;
    if (last) card.append(el("p", "small soft", "last: " + last.what + " of " + named(last.task) + ", " + since(last.until_ms) + " ago, held for " + (last.held_us / 1e6).toFixed(1) + " s"));
    card.append(el("p", "small soft", "in all " + device.jobs + " jobs, held for " + wait(device.held_us / 1000) + ", of these " + wait(device.alone_us / 1000) + " alone"));
    return card;
  });
  at("devices").lastElementChild.replaceChildren(...cards);
}

function news(turns) {
  const box = at("news"), list = box.lastElementChild;
  for (const turn of turns) {
    const task = tasks.get(turn.task);
    if (!task) continue;
    const shown = fold(() => "/task/" + turn.task + "/round/" + turn.number, () => true);
    shown.head.append(el("span", "soft", clock(turn.at_ms)), el("b", "", name(task.row)), el("span", "soft", "round " + turn.number + ", " + turn.step),
      el("span", turn.kind, turn.outcome), el("span", "advice", turn.advice));
    list.prepend(shown.box);
  }
  while (list.children.length > NEWS) list.lastElementChild.remove();
  box.hidden = list.children.length === 0;
}

function take(told) {
  skew = told.now_ms - Date.now();
  if (told.summary) summary = told.summary;
  for (const row of told.tasks || []) {
    let task = tasks.get(row.id);
    if (!task) {
      tasks.set(row.id, task = make(row));
      at("tasks").lastElementChild.append(task.box);
    }
    task.row = row;
    draw(task);
  }
  if (told.devices) devices = told.devices;
  if (told.summary || told.tasks) { sum_up(); troubles(); counted(); }
  if (told.devices || told.summary) draw_devices();
  if (told.news) news(told.news);
}

// How things stand: what was shown before and is not told any more goes.
function restart(told) {
  at("news").lastElementChild.replaceChildren();
  const known = new Set(told.tasks.map((row) => row.id));
  for (const [id, task] of tasks) if (!known.has(id)) { task.box.remove(); tasks.delete(id); }
  take(told);
}

// An address may name a task, and one of its rounds: #task-3-round-2.
function show_named() {
  const [, id, round] = location.hash.match(/^#task-(\d+)(?:-round-(\d+))?$/) || [];
  const task = id === undefined ? undefined : tasks.get(Number(id));
  if (!task) return;
  task.box.open = true;
  rounds(task);
  const turn = task.turns.get(Number(round));
  if (turn) turn.box.open = true;
  (turn || task).box.scrollIntoView();
}

const source = new EventSource("/events");
const link = (kind, text) => { at("pulse").className = "pulse " + kind; say(at("link"), text); };
source.addEventListener("state", (event) => { link("on", "live"); restart(JSON.parse(event.data)); show_named(); });
source.addEventListener("change", (event) => take(JSON.parse(event.data)));
source.onerror = () => link("off", "no connection: what is shown is how it was last");
addEventListener("hashchange", show_named);
for (const id of ["find", "which"]) at(id).addEventListener("input", () => { tasks.forEach(choose); counted(); });
setInterval(() => { if (!document.hidden) { for (const task of tasks.values()) if (task.row.state === "works") age(task); draw_devices(); } }, 1000);
