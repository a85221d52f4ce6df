// Values under the pointer, and a line at the same place in every panel with the same horizontal axis.
'use strict';
(() => {
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  document.body.append(tip);

  // An axis: ends in pixels, and in values where it can be read.
  const axis = (text) => {
    const [from, to, low, high, factor, isLog] = text.split(' ').map(Number);
    return { from, to, low, high, factor, isLog, isRead: factor > 0 };
  };
  const valueAt = (axis, pixel) => {
    const share = (pixel - axis.from) / (axis.to - axis.from);
    const value = axis.low + share * (axis.high - axis.low);
    return (axis.isLog ? 10 ** value : value) / axis.factor;
  };
  const words = (value) => {
    const size = Math.abs(value);
    if (size >= 1000) return Math.round(value).toLocaleString('en-US');
    return String(Number(value.toPrecision(3)));
  };

  // The corners of a line: absolute commands M, L, H and V, as the figures have them.
  const corners = (path) => {
    const points = [];
    let x = 0, y = 0;
    for (const [, command, first, second] of path.getAttribute('d').matchAll(/([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
      if (command === 'H') x = Number(first);
      else if (command === 'V') y = Number(first);
      else [x, y] = [Number(first), Number(second)];
      points.push([x, y]);
    }
    return points;
  };

  const panels = [...document.querySelectorAll('svg g.panel')].map((group) => ({
    group,
    svg: group.ownerSVGElement,
    x: axis(group.dataset.x),
    y: axis(group.dataset.y),
    lines: null,
  }));
  const linesOf = (panel) => panel.lines ??= [...panel.group.querySelectorAll('path')]
    .filter((path) => /^(s\d|fit)$/.test(path.getAttribute('class')))
    .map((path) => ({ name: nameOf(panel, path.getAttribute('class')), points: corners(path) }));
  const nameOf = (panel, ofClass) => {
    const legend = panel.svg.closest('figure')?.querySelectorAll('.legend li') ?? [];
    const entry = [...legend].find((entry) => entry.querySelector(`svg .${ofClass}`));
    return (entry?.textContent || panel.group.dataset.ytitle).trim();
  };

  const clear = () => {
    tip.hidden = true;
    document.querySelectorAll('.cross').forEach((line) => line.remove());
  };
  const cross = (panel, share) => {
    const line = document.createElementNS(panel.group.namespaceURI, 'path');
    const x = panel.x.from + share * (panel.x.to - panel.x.from);
    line.setAttribute('class', 'cross');
    line.setAttribute('d', `M${x} ${panel.y.from}V${panel.y.to}`);
    panel.group.append(line);
  };

  const show = (event) => {
    clear();
    const svg = event.target.closest?.('svg');
    const matrix = svg?.getScreenCTM?.();
    if (!matrix) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const within = (axis, pixel) => pixel >= Math.min(axis.from, axis.to) && pixel <= Math.max(axis.from, axis.to);
    const panel = panels.find((one) => one.svg === svg && within(one.x, at.x) && within(one.y, at.y));
    if (!panel || !panel.y.isRead) return;
    const near = linesOf(panel)
      .map(({ name, points }) => ({ name, point: nearest(points, at.x) }))
      .filter(({ point }) => point);
    if (!near.length) return;
    const share = (at.x - panel.x.from) / (panel.x.to - panel.x.from);
    const { x, xtitle } = panel.group.dataset;
    const isAlike = ({ group }) => group.dataset.x === x && group.dataset.xtitle === xtitle;
    panels.filter((one) => one.svg === svg || isAlike(one)).forEach((one) => cross(one, share));
    const place = panel.x.isRead ? [`${panel.group.dataset.xtitle}: ${words(valueAt(panel.x, at.x))}`] : [];
    const rows = near.map(({ name, point }) => `${name}: ${words(valueAt(panel.y, point[1]))}`);
    tip.replaceChildren(...[...place, ...rows].map((text) => {
      const row = document.createElement('div');
      row.textContent = text;
      return row;
    }));
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  };
  // The corner next to a place; none if the line is far from it.
  const nearest = (points, x) => {
    let best = null;
    for (const point of points) {
      if (!best || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
    }
    return best && Math.abs(best[0] - x) < 40 ? best : null;
  };

  document.addEventListener('pointermove', show);
  document.addEventListener('pointerleave', clear);
})();
