'use strict';
(() => {
// Draws the lanes. Spans of a lane follow each other, so what is visible is found by binary search, and where several
// fall on one pixel their time is added up by prefix sums: a frame costs pixels, not spans.
const head = JSON.parse(document.getElementById('head').textContent);
const canvas = document.getElementById('lanes'), overview = document.getElementById('overview');
const scroll = document.getElementById('scroll'), tip = document.getElementById('tip');
const GUTTER = 170, AXIS = 22, ROW = 20, COUNTER = 42, PROBES = 8, BUCKETS = 4096;
const length = Math.max(head.length, 1);

const FAMILIES = [
  ['receive', /^(recv|read|pread|accept|NET_RX)/], ['send', /^(send|NET_TX|write|pwrite|splice|tee|vmsplice|copy_file)/],
  ['wait', /^(p?select|p?poll|epoll|futex|.*sleep|wait|sched|io_)/], ['sync', /sync/], ['connect', /connect|shutdown|sockopt/],
  ['file', /^(open|close|fstat|lseek|f|unlink|mmap|munmap|ioctl)/]];
const familyOf = name => (/sync/.test(name) ? 'sync' : (FAMILIES.find(([, is]) => is.test(name)) || ['other'])[0]);
const families = head.names.map(familyOf);
const reads = head.names.map(name => /^(recv|read|pread)/.test(name));
const writes = head.names.map(name => /^(send|write|pwrite)/.test(name));
// Shades of grey for threads on CPUs: the colours are those of calls.
const RUNS = ['run1', 'run2', 'run3'];
let colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['ground', 'raised', 'ink', 'faint', 'line', 'bad', ...RUNS, 'receive', 'send', 'wait', 'file', 'sync', 'connect', 'other'])
    colours[name] = style.getPropertyValue('--' + name).trim();
}

// Unpack: see data.rs.
function unpack() {
  const text = atob(document.getElementById('spans').textContent);
  let at = 0;
  const next = () => {
    let value = 0, scale = 1, byte;
    do { byte = text.charCodeAt(at++); value += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    return value;
  };
  const moved = { in: new Float64Array(BUCKETS), out: new Float64Array(BUCKETS) };
  for (const lane of head.lanes) {
    const n = lane.count;
    Object.assign(lane, { from: new Float64Array(n), to: new Float64Array(n), what: new Uint32Array(n),
      value: new Float64Array(n), all: new Float64Array(n + 1), blocked: new Float64Array(n + 1) });
    let last = 0;
    for (let i = 0; i < n; i++) {
      const from = last + next(), to = from + next(), what = next(), raw = next();
      last = to;
      const value = raw % 2 ? -(raw + 1) / 2 : raw / 2;
      lane.from[i] = from; lane.to[i] = to; lane.what[i] = what; lane.value[i] = value;
      lane.all[i + 1] = lane.all[i] + (to - from);
      lane.blocked[i + 1] = lane.blocked[i] + (what & 1 ? to - from : 0);
      if (lane.kind === 'thread' && value > 0 && !(what & 2)) {
        const bucket = Math.min(BUCKETS - 1, Math.floor(to / length * BUCKETS)), call = what >>> 2;
        if (reads[call]) moved.in[bucket] += value; else if (writes[call]) moved.out[bucket] += value;
      }
    }
  }
  return moved;
}
const moved = unpack();
const threads = head.lanes.filter(lane => lane.kind === 'thread');
const cpus = head.lanes.filter(lane => lane.kind === 'cpu');

// The first span that ends after a time.
function search(ends, time) {
  let low = 0, high = ends.length;
  while (low < high) { const middle = (low + high) >>> 1; if (ends[middle] > time) high = middle; else low = middle + 1; }
  return low;
}
// The same, not before `low`, near which it is expected.
function ahead(ends, time, low) {
  let step = 1;
  while (low + step < ends.length && ends[low + step] <= time) { low += step; step *= 2; }
  let high = Math.min(low + step, ends.length);
  while (low < high) { const middle = (low + high) >>> 1; if (ends[middle] > time) high = middle; else low = middle + 1; }
  return low;
}
// How much of [from, to) the spans cover, by prefix sums.
function covered(lane, sums, from, to, first, last, isBlocked) {
  if (last <= first) return 0;
  let sum = sums[last] - sums[first];
  const cut = (i, excess) => { if (excess > 0 && (!isBlocked || lane.what[i] & 1)) sum -= excess; };
  cut(first, from - lane.from[first]);
  cut(last - 1, lane.to[last - 1] - to);
  return sum;
}

const rows = [];
if (cpus.length) rows.push({ label: 'CPUs used', height: COUNTER, draw: drawLoad });
if (moved.in.some(v => v) || moved.out.some(v => v)) rows.push({ label: 'bytes in, out', height: COUNTER, draw: drawMoved });
for (const counter of head.counters) rows.push({ label: counter.label, height: COUNTER, draw: (top, tall) => drawCounter(counter, top, tall) });
let process = null;
for (const lane of head.lanes) {
  if (lane.kind === 'thread' && lane.process !== process) {
    process = lane.process;
    rows.push({ label: 'process ' + process, height: ROW, heading: true });
  }
  rows.push({ label: lane.label, height: ROW, lane });
}
let total = AXIS;
for (const row of rows) { row.top = total; total += row.height; }

let from = 0, to = length, width = 0, height = 0, queued = false;
const pen = canvas.getContext('2d'), small = overview.getContext('2d');
const x = time => GUTTER + (time - from) / (to - from) * (width - GUTTER);
const time = px => from + (px - GUTTER) / (width - GUTTER) * (to - from);

const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
// A moment in the unit of all that is seen, with as many digits as steps of `step` ns need.
function moment(ns, step) {
  const [unit, name] = UNITS.find(([unit]) => to >= unit);
  return (ns / unit).toFixed(Math.max(0, Math.ceil(Math.log10(unit / Math.max(step, 1)) - 1e-9))) + ' ' + name;
}
function show(ns) {
  const abs = Math.abs(ns);
  if (abs >= 1e9) return (ns / 1e9).toFixed(abs >= 1e10 ? 2 : 4) + ' s';
  if (abs >= 1e6) return (ns / 1e6).toFixed(3) + ' ms';
  return abs >= 1e3 ? (ns / 1e3).toFixed(3) + ' µs' : Math.round(ns) + ' ns';
}
function showBytes(bytes) {
  const [unit, name] = [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [0, 'B']].find(([unit]) => bytes >= unit);
  return Number((bytes / (unit || 1)).toPrecision(3)) + ' ' + name;
}
function size(context, element, w, h) {
  const ratio = window.devicePixelRatio || 1;
  element.width = Math.round(w * ratio); element.height = Math.round(h * ratio);
  element.style.height = h + 'px';
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
}
function colourOf(lane, what) {
  if (lane.kind === 'thread') return colours[families[what >>> 2] || 'other'];
  if (lane.kind === 'softirq') return colours[familyOf(nameOf(lane, what))];
  return colours[RUNS[(what >>> 2) % RUNS.length]];
}
function nameOf(lane, what) {
  if (lane.kind === 'thread') return head.names[what >>> 2] || 'call';
  return lane.kind === 'softirq' ? head.softirqs[(what >>> 2) - 2] : (threads[what >>> 2] || { label: '?' }).label;
}

function drawLane(lane, top) {
  const bottom = top + ROW - 3, full = ROW - 5;
  const first = search(lane.to, from), end = search(lane.from, to);
  const columns = width - GUTTER;
  if (end - first > 2 * columns) return drawDense(lane, top + 2, full, first);
  // A span is drawn 0.6 pixels wide at least: many narrower ones would fill a lane that is nearly empty.
  let narrow = 0;
  for (let i = first; i < end; i++) if ((lane.to[i] - lane.from[i]) / (to - from) * columns < 0.6) narrow++;
  if (narrow > columns / 30) return drawDense(lane, top + 2, full, first);
  pen.save(); pen.beginPath(); pen.rect(GUTTER, top, width - GUTTER, ROW); pen.clip();
  for (let i = first; i < end; i++) {
    const left = x(lane.from[i]), span = Math.max(x(lane.to[i]) - left, 0.6), half = lane.what[i] & 1;
    const tall = half ? full / 2 : full;
    pen.fillStyle = colourOf(lane, lane.what[i]);
    pen.globalAlpha = half ? 0.55 : 1;
    pen.fillRect(left, bottom - tall, span, tall);
    if (span > 46) {
      pen.globalAlpha = 1;
      pen.fillStyle = half ? colours.ink : colours.ground;
      pen.fillText(nameOf(lane, lane.what[i]), Math.max(left, GUTTER) + 4, bottom - 3, Math.max(left + span - Math.max(left, GUTTER) - 8, 1));
    }
  }
  pen.globalAlpha = 1;
  pen.restore();
}
// More spans than pixels: column after column of an image, for filling thousands of rectangles takes longer than finding them.
function drawDense(lane, top, full, first) {
  const ratio = window.devicePixelRatio || 1, columns = Math.round((width - GUTTER) * ratio), tall = Math.round(full * ratio);
  const image = pen.createImageData(columns, tall), dots = new Uint32Array(image.data.buffer), per = (to - from) / columns;
  for (let column = 0, at = first, next = first; column < columns; column++) {
    const begin = from + column * per, stop = begin + per;
    at = ahead(lane.to, begin, at); next = ahead(lane.from, stop, next);
    if (next <= at) continue;
    const all = covered(lane, lane.all, begin, stop, at, next, false) / per;
    const blocked = covered(lane, lane.blocked, begin, stop, at, next, true) / per;
    // The colour is that of the longest among some of them.
    let longest = at;
    const step = Math.max(1, Math.floor((next - at) / PROBES));
    for (let i = at; i < next; i += step) if (lane.to[i] - lane.from[i] > lane.to[longest] - lane.from[longest]) longest = i;
    const colour = dotOf(colourOf(lane, lane.what[longest])), pale = (colour & 0xffffff | 0x8c000000) >>> 0;
    const solidFrom = tall - Math.max(1, Math.round(Math.min(1, Math.max(all - blocked, 0)) * tall));
    for (let y = tall - Math.round(Math.min(1, blocked) * tall / 2); y < solidFrom; y++) dots[y * columns + column] = pale;
    for (let y = solidFrom; y < tall; y++) dots[y * columns + column] = colour;
  }
  pen.putImageData(image, Math.round(GUTTER * ratio), Math.round(top * ratio));
}
// A colour '#rrggbb' as a dot of an image (bytes R, G, B, A).
function dotOf(colour) {
  const number = parseInt(colour.slice(1), 16);
  return (0xff000000 | (number & 255) << 16 | number & 0xff00 | number >>> 16) >>> 0;
}
function area(top, tall, values, most, colour) {
  pen.fillStyle = colour; pen.globalAlpha = 0.75;
  for (let px = 0; px < values.length; px++) {
    const h = Math.min(1, values[px] / most) * (tall - 8);
    if (h > 0) pen.fillRect(GUTTER + px, top + tall - 3 - h, 1, h);
  }
  pen.globalAlpha = 1;
}
function drawLoad(top, tall) {
  const columns = Math.floor(width - GUTTER), per = (to - from) / columns, values = new Float64Array(columns);
  for (const lane of cpus)
    for (let px = 0, first = 0, last = 0; px < columns; px++) {
      const begin = from + px * per;
      first = ahead(lane.to, begin, first); last = ahead(lane.from, begin + per, last);
      if (last > first) values[px] += covered(lane, lane.all, begin, begin + per, first, last, false) / per;
    }
  area(top, tall, values, cpus.length, colours.run2);
  return 'of ' + cpus.length;
}
function drawMoved(top, tall) {
  const columns = Math.floor(width - GUTTER), per = (to - from) / columns, bucket = length / BUCKETS;
  const rate = (sums, px) => {
    const begin = (from + px * per) / bucket, end = Math.max((from + (px + 1) * per) / bucket, begin + 1e-9);
    let sum = 0;
    for (let i = Math.floor(begin); i < Math.min(BUCKETS, Math.ceil(end)); i++)
      sum += sums[i] * (Math.min(end, i + 1) - Math.max(begin, i));
    return sum / ((end - begin) * bucket) * 1e9;
  };
  const ins = Float64Array.from({ length: columns }, (_, px) => rate(moved.in, px));
  const outs = Float64Array.from({ length: columns }, (_, px) => rate(moved.out, px));
  const most = Math.max(ins.reduce((a, b) => Math.max(a, b), 0), outs.reduce((a, b) => Math.max(a, b), 0));
  area(top, tall, ins, most, colours.receive);
  area(top, tall, outs, most, colours.send);
  return 'up to ' + showBytes(most) + '/s';
}
// What is between two looks was as at the first of them; of several on one pixel the most is shown.
function drawCounter(counter, top, tall) {
  const columns = Math.floor(width - GUTTER), per = (to - from) / columns, values = new Float64Array(columns);
  let next = search(counter.at, from);
  for (let px = 0; px < columns; px++) {
    const end = from + (px + 1) * per;
    values[px] = next > 0 ? counter.bytes[next - 1] : 0;
    for (; next < counter.at.length && counter.at[next] <= end; next++) values[px] = Math.max(values[px], counter.bytes[next]);
  }
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  area(top, tall, values, most, colours.faint);
  return 'up to ' + showBytes(most);
}
function drawAxis() {
  pen.fillStyle = colours.ground; pen.fillRect(0, 0, width, AXIS);
  const rough = (to - from) / Math.max(2, (width - GUTTER) / 130), power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map(n => n * power).find(n => n >= rough));
  pen.strokeStyle = colours.line; pen.fillStyle = colours.faint;
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    pen.beginPath(); pen.moveTo(x(at), AXIS - 5); pen.lineTo(x(at), height); pen.globalAlpha = 0.45; pen.stroke(); pen.globalAlpha = 1;
    pen.fillText(moment(at, step), x(at) + 3, 13);
  }
}
// What was lost is never hidden: hatched over all lanes, for any of them may miss calls there.
function drawLosses() {
  pen.save(); pen.beginPath(); pen.rect(GUTTER, AXIS, width - GUTTER, height); pen.clip();
  pen.strokeStyle = colours.bad; pen.fillStyle = colours.bad;
  for (const loss of head.losses) {
    if (loss.to < from || loss.from > to) continue;
    const left = Math.max(x(loss.from), GUTTER), right = Math.max(Math.min(x(loss.to), width), left + 1);
    pen.globalAlpha = 0.16; pen.fillRect(left, AXIS, right - left, height);
    pen.globalAlpha = 0.5;
    for (let y = AXIS - (right - left); right - left > 6 && y < height; y += 9) { pen.beginPath(); pen.moveTo(left, y); pen.lineTo(right, y + (right - left)); pen.stroke(); }
    if (right - left > 90) { pen.globalAlpha = 1; pen.fillText(loss.events + ' events lost (CPU ' + loss.cpu + ')', left + 4, AXIS + 12); }
  }
  pen.restore();
}
function draw() {
  queued = false;
  pen.clearRect(0, 0, width, height);
  pen.font = '12px system-ui, sans-serif'; pen.textBaseline = 'alphabetic';
  const offset = scroll.scrollTop;
  for (const row of rows) {
    const top = row.top - offset;
    if (top + row.height < AXIS || top > height) continue;
    const scale = row.lane ? drawLane(row.lane, top) : row.draw && row.draw(top, row.height);
    pen.fillStyle = colours.ground; pen.fillRect(0, top, GUTTER, row.height);
    if (scale) { pen.fillStyle = colours.faint; pen.fillText(scale, 12, top + 30, GUTTER - 18); }
    pen.fillStyle = row.heading ? colours.faint : colours.ink;
    pen.fillText(row.label, row.heading ? 4 : 12, top + 14, GUTTER - 18);
  }
  drawLosses(); drawAxis(); drawOverview();
  document.getElementById('range').textContent = moment(from, (to - from) / 100) + ' to ' + moment(to, (to - from) / 100) + ' (' + show(to - from) + ')';
}
function drawOverview() {
  small.clearRect(0, 0, width, 36);
  small.fillStyle = colours.raised; small.fillRect(GUTTER, 0, width - GUTTER, 36);
  small.drawImage(background(), GUTTER, 0, width - GUTTER, 36);
  const left = GUTTER + from / length * (width - GUTTER), right = GUTTER + to / length * (width - GUTTER);
  small.strokeStyle = colours.ink; small.strokeRect(left + 0.5, 0.5, Math.max(right - left - 1, 2), 35);
}
let kept = null;
function background() {
  if (kept) return kept;
  kept = document.createElement('canvas'); kept.width = 800; kept.height = 36;
  const ink = kept.getContext('2d'), per = length / 800;
  // CPUs in use; without them, threads in calls.
  const lanes = cpus.length ? cpus : threads.slice(0, 60);
  ink.fillStyle = colours.run2;
  for (let px = 0; px < 800; px++) {
    let sum = 0;
    for (const lane of lanes) {
      const first = search(lane.to, px * per), last = search(lane.from, (px + 1) * per);
      sum += covered(lane, lane.all, px * per, (px + 1) * per, first, last, false) / per;
    }
    const h = Math.min(1, sum / lanes.length) * 34;
    ink.fillRect(px, 36 - h, 1, h);
  }
  for (const loss of head.losses) { ink.fillStyle = colours.bad; ink.fillRect(loss.from / per, 0, Math.max((loss.to - loss.from) / per, 1), 6); }
  return kept;
}
function redraw() { if (!queued) { queued = true; requestAnimationFrame(draw); } }
function look(begin, end) {
  const span = Math.min(Math.max(end - begin, 50), length);
  from = Math.min(Math.max(begin, 0), length - span); to = from + span;
  redraw();
}
function zoom(factor, centre) { look(centre - (centre - from) * factor, centre + (to - centre) * factor); }
function layout() {
  readColours(); kept = null;
  height = Math.min(Math.max(innerHeight * 0.62, 240), 680, Math.max(total + 8, 120));
  scroll.style.height = height + 2 + 'px';
  width = scroll.clientWidth;
  document.getElementById('spacer').style.height = Math.max(0, total - height) + 'px';
  size(pen, canvas, width, height); size(small, overview, width, 36);
  redraw();
}

function spanAt(event) {
  const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, y = event.clientY - box.top + scroll.scrollTop;
  if (px < GUTTER) return null;
  const row = rows.find(row => y >= row.top && y < row.top + row.height);
  if (!row || !row.lane) return null;
  const near = (to - from) / (width - GUTTER), at = time(px), i = search(row.lane.to, at - near);
  return i < row.lane.from.length && row.lane.from[i] <= at + near ? { lane: row.lane, i } : null;
}
function tell(event) {
  const found = spanAt(event);
  tip.hidden = !found;
  if (!found) return;
  const { lane, i } = found, what = lane.what[i], precision = (lane.to[i] - lane.from[i]) / 100;
  const lines = [nameOf(lane, what) + ': ' + show(lane.to[i] - lane.from[i]), 'from ' + moment(lane.from[i], precision) + ' to ' + moment(lane.to[i], precision)];
  if (lane.kind === 'thread') {
    const ready = head.states ? 'ready: kept its CPU' : 'ready or blocked: this system does not tell';
    const state = what & 2 ? 'its end was not seen' : what & 1 ? 'blocked: switched out inside' : ready;
    lines.push(head.returns && !(what & 2) ? state + '; returned ' + lane.value[i] : state);
    lines.push(lane.label + ', process ' + lane.process);
  }
  tip.textContent = lines.join('\n');
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
  tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + 'px';
}
let drag = null;
canvas.addEventListener('pointerdown', event => { drag = { x: event.clientX, y: event.clientY, from, to, top: scroll.scrollTop }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener('pointerup', () => { drag = null; });
canvas.addEventListener('pointermove', event => {
  if (!drag) return tell(event);
  const shift = (event.clientX - drag.x) / (width - GUTTER) * (drag.to - drag.from);
  scroll.scrollTop = drag.top - (event.clientY - drag.y);
  look(drag.from - shift, drag.to - shift);
});
canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
canvas.addEventListener('wheel', event => {
  event.preventDefault();
  if (event.shiftKey) return look(from + event.deltaY / 800 * (to - from), to + event.deltaY / 800 * (to - from));
  zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) / 250), time(Math.max(event.clientX - canvas.getBoundingClientRect().left, GUTTER)));
}, { passive: false });
canvas.addEventListener('dblclick', event => {
  const found = spanAt(event);
  if (!found) return;
  const { lane, i } = found, margin = Math.max(lane.to[i] - lane.from[i], 100);
  look(lane.from[i] - margin, lane.to[i] + margin);
});
overview.addEventListener('click', event => {
  const at = (event.clientX - overview.getBoundingClientRect().left - GUTTER) / (width - GUTTER) * length;
  look(at - (to - from) / 2, at + (to - from) / 2);
});
canvas.addEventListener('keydown', event => {
  const step = (to - from) / 5, middle = (from + to) / 2;
  const act = { ArrowLeft: () => look(from - step, to - step), ArrowRight: () => look(from + step, to + step),
    ArrowUp: () => { scroll.scrollTop -= ROW; }, ArrowDown: () => { scroll.scrollTop += ROW; },
    '+': () => zoom(0.6, middle), '=': () => zoom(0.6, middle), '-': () => zoom(1.6, middle), '0': () => look(0, length) }[event.key];
  if (act) { act(); event.preventDefault(); }
});
document.getElementById('in').onclick = () => zoom(0.5, (from + to) / 2);
document.getElementById('out').onclick = () => zoom(2, (from + to) / 2);
document.getElementById('all').onclick = () => look(0, length);
scroll.addEventListener('scroll', redraw);
addEventListener('resize', layout);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', layout);
const seen = new Set(head.lanes.filter(lane => lane.kind !== 'cpu').flatMap(lane => [...new Set(lane.what)].map(what => familyOf(nameOf(lane, what)))));
if (cpus.length) seen.add('cpu');
const KEYS = { cpu: ['linear-gradient(90deg, var(--run1) 33%, var(--run2) 33% 67%, var(--run3) 67%)', 'thread on a CPU'] };
for (const name of ['cpu', 'receive', 'send', 'wait', 'file', 'sync', 'connect', 'other'].filter(name => seen.has(name))) {
  const item = document.createElement('span'), swatch = document.createElement('i');
  const [colour, label] = KEYS[name] || ['var(--' + name + ')', name];
  swatch.style.background = colour;
  item.append(swatch, label);
  document.getElementById('legend').append(item);
}
layout();
})();
